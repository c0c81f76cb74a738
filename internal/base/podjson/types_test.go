package podjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	sigsjson "sigs.k8s.io/json"
)

// A field with a value of another type is named, without Go's type names.
func TestFieldOfWrongType(t *testing.T) {
	for text, want := range map[string]string{
		`{"spec":{"containers":[{"resources":{"requests":{"cpu":true}}}]}}`:         "spec.containers[0].resources.requests.cpu: want a quantity, got true",
		`{"spec":{"containers":[{"resources":{"requests":{"cpu":["1"]}}}]}}`:        "spec.containers[0].resources.requests.cpu: want a quantity, got a list",
		`{"spec":{"containers":[{"resources":{"requests":{"cpu":"half"}}}]}}`:       `spec.containers[0].resources.requests.cpu: want a quantity, got "half"`,
		`{"spec":{"containers":[{"resources":{"requests":7}}]}}`:                    "spec.containers[0].resources.requests: want an object, got 7",
		`{"spec":{"containers":{"name":"c"}}}`:                                      "spec.containers: want a list, got an object",
		`{"spec":{"containers":["c"]}}`:                                             `spec.containers[0]: want an object, got "c"`,
		`{"spec":{"hostNetwork":"yes"}}`:                                            `spec.hostNetwork: want true or false, got "yes"`,
		`{"spec":{"priority":1.5}}`:                                                 "spec.priority: want a whole number of 32 bits, got 1.5",
		`{"spec":{"priority":3000000000}}`:                                          "spec.priority: want a whole number of 32 bits, got 3000000000",
		`{"metadata":{"labels":{"a":1}}}`:                                           "metadata.labels.a: want text, got 1",
		`{"metadata":{"creationTimestamp":"yesterday"}}`:                            `metadata.creationTimestamp: want a time such as 2006-01-02T15:04:05Z, got "yesterday"`,
		`{"metadata":{"deletionTimestamp":{}}}`:                                     "metadata.deletionTimestamp: want a time such as 2006-01-02T15:04:05Z, got an object",
		`{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":false}}}]}}`:    "spec.containers[0].livenessProbe.httpGet.port: want a whole number of 32 bits, or text, got false",
		`{"metadata":{"uid":"` + strings.Repeat("u", 5) + `","finalizers":"x\ny"}}`: `metadata.finalizers: want a list, got "x\ny"`,
		`{"spec":"` + strings.Repeat("s", 100) + `"}`:                               `spec: want an object, got "` + strings.Repeat("s", 64) + `"...`,
		`7`:    "the pod: want an object, got 7",
		`true`: "the pod: want an object, got true",
	} {
		if _, _, err := DecodeForAdmission([]byte(text)); fmt.Sprint(err) != want {
			t.Errorf("Asking(%s): error\n got %v\nwant %s", text, err, want)
		}
	}
}

// The guard rejects the same types as the decoder, for each type of a pod in place of each other.
func TestGuardAgreesWithDecoder(t *testing.T) {
	fields := []string{
		`"metadata":{"uid":%s}`, `"metadata":{"generation":%s}`, `"metadata":{"creationTimestamp":%s}`, `"metadata":{"labels":%s}`,
		`"metadata":{"labels":{"a":%s}}`, `"metadata":{"finalizers":%s}`, `"metadata":{"finalizers":[%s]}`, `"metadata":{"managedFields":[{"fieldsV1":%s}]}`,
		`"spec":%s`, `"spec":{"priority":%s}`, `"spec":{"hostPID":%s}`, `"spec":{"overhead":{"cpu":%s}}`, `"spec":{"os":%s}`,
		`"spec":{"terminationGracePeriodSeconds":%s}`, `"spec":{"containers":[{"readinessProbe":{"tcpSocket":{"port":%s}}}]}`,
		`"spec":{"enableServiceLinks":%s}`, `"status":{"phase":%s}`, `"spec":{"volumes":[{"emptyDir":{"sizeLimit":%s}}]}`,
	}
	values := []string{`null`, `true`, `false`, `0`, `-1`, `7`, `1.5`, `1e2`, `1e99`, `3000000000`, `99999999999999999999`, `""`, `"a"`, `"7"`,
		`"1Gi"`, `"2026-01-02T15:04:05Z"`, `"2026-01-02T15:04:05.123456Z"`, `{}`, `[]`, `[1]`, `["a"]`, `{"a":"b"}`, `{"a":1}`, `[{}]`, `[null]`}
	for _, f := range fields {
		for _, v := range values {
			text := []byte("{" + fmt.Sprintf(f, v) + "}")
			if !json.Valid(text) {
				t.Fatal(string(text))
			}
			_, decoder := sigsjson.UnmarshalStrict(text, &v1.Pod{})
			err := guard(text, bounds{memory: MaxAsking})
			if (decoder == nil) != (err == nil) && !(decoder == nil && strings.Contains(fmt.Sprint(err), "negative")) {
				t.Errorf("error of the guard for %s = %v, of the decoder = %v", text, err, decoder)
			}
		}
	}
}

// A put pod with unknown fields is rejected for the first one, whatever follows, and not for its
// size.
func TestFirstUnknownFieldRejects(t *testing.T) {
	for n, spec := range map[int]string{1: `{}`, 100: `{"contianers":[]}`, 5000: `{}`, 2: `{"containers":[` + strings.Repeat("{},", 40000) + `{}]}`} {
		raw := []byte(`{` + meta + strings.Repeat(`,"odd":{"a":[1]}`, n) + `,"spec":` + spec + `}`)
		if _, err := Pod(raw); fmt.Sprint(err) != `unknown field "odd"` || errors.Is(err, ErrTooLarge) {
			t.Errorf("Pod with %d unknown fields: error %v, want about the first", n, err)
		}
	}
}

// The guard knows each field that the decoder knows.
func TestGuardKnowsEveryField(t *testing.T) {
	found := 0
	var walk func(typ reflect.Type, before, after string)
	walk = func(typ reflect.Type, before, after string) {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch {
		case reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Unmarshaler]()):
		case typ.Kind() == reflect.Slice && typ.Elem().Kind() != reflect.Uint8:
			walk(typ.Elem(), before+`[`, `]`+after)
		case typ.Kind() == reflect.Map:
			walk(typ.Elem(), before+`{"k":`, `}`+after)
		case typ.Kind() == reflect.Struct:
			for i := range typ.NumField() {
				f := typ.Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if name == "" {
					walk(f.Type, before, after)
					continue
				}
				found++
				text := []byte(before + `{"` + name + `":null}` + after)
				warnings, err := sigsjson.UnmarshalStrict(text, &v1.Pod{})
				if got := guard(text, bounds{memory: maxDecoded, strict: true}); got != nil || err != nil || len(warnings) > 0 {
					t.Errorf("error of the guard for %s = %v, of the decoder = %v, %v; want none", text, got, err, warnings)
				}
				walk(f.Type, before+`{"`+name+`":`, `}`+after)
			}
		}
	}
	walk(reflect.TypeFor[v1.Pod](), "", "")
	if found < 1000 {
		t.Errorf("%d fields found, want at least 1000", found)
	}
}

// The line is that of the field, or of its last parent in the text.
func TestLine(t *testing.T) {
	for text, want := range map[string]int{
		"a: 1\nspec:\n  priority: high\n":                                3,
		"spec: {priority: high}\n":                                       1,
		"# c\n---\n# d\n---\nspec:\n  containers:\n  - name: c\n  - x\n": 8,
		"spec:\n  overhead:\n    cpu:\n      a: b\n":                     3,
		"- a\n": 1,
		"{\n\"spec\": {\n\t\"priority\": \"high\"}}": 3,
		"spec: {}\n": 0,
	} {
		raw := []byte(text)
		if text[0] != '{' {
			var err error
			if raw, err = YAML(raw); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := DecodeForAdmission(raw)
		if got := Line([]byte(text), err); got != want {
			t.Errorf("Line(%q) = %d, want %d; error %v", text, got, want, err)
		}
	}
}
