package podjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	sigsyaml "sigs.k8s.io/yaml"
)

// An admission request keeps all of its pod, and names fields of a newer API.
func TestAsking(t *testing.T) {
	p, unknown, err := DecodeForAdmission([]byte(realistic(1)))
	if err != nil || len(unknown) > 0 || len(p.Spec.Containers[0].Env) == 0 || len(p.Status.ContainerStatuses) == 0 || Named(p) != nil {
		t.Fatalf("Asking = %+v, %v, %v; want the whole pod without unknown fields", p, unknown, err)
	}
	for text, want := range map[string]string{
		`{}`: "[] metadata.uid: missing",
		`{"metadata":{"uid":"a","namespace":"b","name":"c"},"spec":{"x":1,"containers":[{"y":2}]}}`: "[spec.x spec.containers[0].y] <nil>",
		`{"Metadata":{"uid":"a"}}`:           "[Metadata] metadata.uid: missing",
		`{"metadata":{"uid":"a","uid":"b"}}`: `duplicate field "metadata.uid"`,
		`{"spec":{"x":1,"x":2}}`:             "[spec.x] metadata.uid: missing",
		`{"metadata":{"uid":7}}`:             "metadata.uid: want text, got 7",
		`{"kind":"Pod","apiVersion":"v2"}`:   `apiVersion "v2", kind "Pod": want v1, Pod`,
		// An object of another kind is reported as such, and not by its fields.
		`{"kind":"Node","apiVersion":"v1","spec":{"taints":[]},"status":{"conditions":7}}`: `apiVersion "v1", kind "Node": want v1, Pod`,
		`{"kind":"Deployment","apiVersion":"apps/v1","spec":{"overhead":{"cpu":"many"}}}`:  `apiVersion "apps/v1", kind "Deployment": want v1, Pod`,
		`{"kind":["Pod"],"spec":{"overhead":{"cpu":"many"}}}`:                              `kind: want text, got a list`,
		`{"spec":{"overhead":{"cpu":"1"}}`:                                                 "incomplete text",
	} {
		p, unknown, err := DecodeForAdmission([]byte(text))
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(unknown, " ", Named(p))
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("Asking(%s)\n got %s\nwant %s", text, got, want)
		}
	}
}

// A pod without a container is a misunderstood text: an admission of it would mean nothing.
func TestPodWithoutContainersIsIncomplete(t *testing.T) {
	for text, want := range map[string]string{
		`{"spec":{}}`:          "spec.containers: missing",
		`{"spec":null}`:        "spec.containers: missing",
		`{"specs":{"a":[{}]}}`: `spec.containers: missing; unknown field "specs"`,
		`{"spec":{"containers":[],"initContainers":[{"name":"c"}]}}`: "spec.containers: missing",
		`{"spec":{"containers":[{}]}}`:                               "<nil>",
		`{"spec":{"shiny":1,"containers":[{"name":"c"}]}}`:           "<nil>",
	} {
		p, unknown, err := DecodeForAdmission([]byte(strings.Replace(text, "{", `{`+meta+`,`, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(Complete(p, unknown)); got != want {
			t.Errorf("Complete of %s\n got %s\nwant %s", text, got, want)
		}
	}
}

// However a client's pod is nested, the walk is no deeper than maxDepth. Unknown fields are
// accepted, and at most a hundred are named.
func TestAskingIsBounded(t *testing.T) {
	deep := func(n int) string {
		return `{` + meta + `,"x":` + strings.Repeat(`[`, n) + `1` + strings.Repeat(`]`, n) + `}`
	}
	unknownFields := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"x\n%d":1,`, i)
		}
		return `{` + b.String() + meta + `}`
	}
	for _, c := range []struct{ name, text, want string }{
		{"maximal depth", deep(maxDepth - 1), ""},
		{"beyond it", deep(maxDepth), "x" + strings.Repeat("[0]", 33) + "...: too large: nested deeper than 100 values"},
		{"as deep as the text is long", `{"a":` + strings.Repeat("[", MaxPod-5), "a" + strings.Repeat("[0]", 33) + "...: too large: nested deeper than 100 values"},
		{"objects", strings.Repeat(`{"a":`, MaxPod/5), strings.Repeat("a.", 50) + "...: too large: nested deeper than 100 values"},
		{"as many unknown fields as the decoder reports", unknownFields(100), ""},
		{"one more", unknownFields(101), ""},
		{"as many as fit in the text", unknownFields(80_000), ""},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		_, unknown, err := DecodeForAdmission([]byte(c.text))
		if d := time.Since(began); d > tooLong || len(unknown) > 100 {
			t.Errorf("%s: Asking took %v, %d unknown fields; want at most 100", c.name, d, len(unknown))
		}
		runtime.ReadMemStats(&after)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want || err != nil && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %d unknown fields, error %.200s; want %s", c.name, len(unknown), got, c.want)
		}
		if stack := int64(after.StackSys) - int64(before.StackSys); stack > 1<<20 {
			t.Errorf("%s: stacks grew by %d MiB, want at most 1", c.name, stack>>20)
		}
	}
	if _, warnings, err := Manifest([]byte(`{"apiVersion":"v1","kind":"Pod",` + unknownFields(1000)[1:])); err != nil || len(warnings) == 0 { // a manifest is root's
		t.Errorf("Manifest with unknown fields: %d warnings, error %v; want warnings only", len(warnings), err)
	}
}

// Two unknown fields in each of a pod's containers are accepted, and hide no duplicate field.
func TestNewFieldsOfManyContainers(t *testing.T) {
	pod := func(rest string) []byte {
		return []byte(`{` + meta + `,"spec":{"containers":[` + strings.Repeat(`{"name":"c","newOne":1,"newTwo":{"a":1,"a":2}},`, 51) + rest + `]}}`)
	}
	if p, unknown, err := DecodeForAdmission(pod(`{"name":"c"}`)); err != nil || len(p.Spec.Containers) != 52 || len(unknown) != 100 {
		t.Errorf("Asking = %d unknown fields, error %v; want 100 and nil", len(unknown), err)
	}
	for text, want := range map[string]string{
		`{"name":"c","name":"d"}`:                        `duplicate field "spec.containers[51].name"`,
		`{"resources":{"limits":{"cpu":"1","cpu":"2"}}}`: `duplicate field "spec.containers[51].resources.limits.cpu"`,
	} {
		if _, _, err := DecodeForAdmission(pod(text)); fmt.Sprint(err) != want {
			t.Errorf("Asking with %s: error %v, want %s", text, err, want)
		}
	}
}

// YAML returns what kubectl would send, or an error with the line.
func TestYAML(t *testing.T) {
	var fields []byte
	for i := range 5000 {
		fields = fmt.Appendf(fields, "k%d: v\n", i)
	}
	bomb := "a: &a [" + strings.Repeat("x", 9000) + "]\nb: [" + strings.Repeat("*a,", 3000) + "*a]\n"
	for _, c := range []struct{ text, want, err string }{
		{"a: 1\nb: [x, 1.5, yes, null, ~]\n", `{"a":1,"b":["x",1.5,true,null,null]}`, ""},
		{"# a comment\n---\na: {b: c}\n...\n", `{"a":{"b":"c"}}`, ""},
		{`{"a": "1"}`, `{"a":"1"}`, ""},
		{"a: |\n  x\n  y\n", `{"a":"x\ny\n"}`, ""},
		{"a: &x 1\n", `{"a":1}`, ""},
		{"7: a\ntrue: b\n", `{"7":"a","true":"b"}`, ""},
		{"", "", "empty text: want one pod"},
		{"# nothing\n", "", "empty text: want one pod"},
		{"a: 1\n---\na: 2\n", "", "line 2: a second document: want one pod"},
		{"a: 1\n---\n", `{"a":1}`, ""},
		{"a: 1\n---\n# the end\n---\n", `{"a":1}`, ""},
		{"---\n# Source: chart/templates/a.yaml\n---\n# Source: b\na: 1\n", `{"a":1}`, ""},
		{"# a\n---\n---\n--- {a: 1}\n---\n", `{"a":1}`, ""},
		{"---\r\n# Source\r\n---\r\na: 1\r\n", `{"a":1}`, ""},
		{"---\n---\na: 1\n---\na: 2\n", "", "line 4: a second document: want one pod"},
		{"---\n---\na: 1\na: 2\n", "", `not YAML: line 4: key "a" already set in map`},
		{"---\n---\na: &x 1\nb: *x\n", "", "line 4: alias *x not supported: write its content instead"},
		{"---\n...\na: 1\n", "", "not YAML: line 2: did not find expected <document start>"},
		{"---\n# \u2028\n---\na: 1\n---\n", "", "line 4: document without --- at its beginning: want one pod"},
		{"---\n---\n", "", "empty text: want one pod"},
		{"a: 1\n---\nb: c: d\n", "", "not YAML: line 3: mapping values are not allowed in this context"},
		{"a: 1\na: 2\n", "", `not YAML: line 2: key "a" already set in map`},
		{"a: &x 1\nb: *x\n", "", "line 2: alias *x not supported: write its content instead"},
		{"a: &x {b: 1}\nc: {<<: *x}\n", "", "line 2: alias *x not supported: write its content instead"},
		{"a: *x\n", "", "not YAML: unknown anchor 'x' referenced"},
		{"a: &a [*a]\n", "", "line 1: alias *a not supported: write its content instead"},
		{bomb, "", "line 2: alias *a not supported: write its content instead"},
		{"{{a: 1}: 2}", "", "not YAML: invalid map key: map[interface {}]interface {}{\"a\":1}"},
		{"[a]: 2", "", "not YAML: invalid map key: []interface {}{\"a\"}"},
		{"null: 2", "", "not YAML: unsupported map key of type: %!s(<nil>), key: <nil>, value: 2"},
		{"a: .inf", "", "not YAML: json: unsupported value: +Inf"},
		{"a: \x00", "", "not YAML: control characters are not allowed"},
		{"a: \"\xff\"", "", "not YAML: invalid leading UTF-8 octet"},
		{strings.Repeat("[", 9000), "", "not YAML: line 1: did not find expected node content"},
		{strings.Repeat("- ", 9000) + "a", "", ""},
		{string(fields), "", ""},
		{"[" + strings.Repeat("[],", maxYAMLs/2+10) + "a]", "", "too large: more than about 10000 values of YAML for one pod: send it as JSON (kubectl ... -o json)"},
		{"a: " + strings.Repeat("x", MaxYAML), "", "too large: more than 262144 bytes of YAML for one pod: send it as JSON (kubectl ... -o json)"},
	} {
		began := time.Now()
		got, err := YAML([]byte(c.text))
		if d := time.Since(began); d > tooLong {
			t.Errorf("YAML(%.50q) took %v, want less", c.text, d)
		}
		if text := fmt.Sprint(err); c.err == "" && err != nil || c.err != "" && text != c.err || c.want != "" && string(got) != c.want {
			t.Errorf("YAML(%.50q)\n got %.200s, %.300v\nwant %s, %s", c.text, got, err, c.want, c.err)
		}
		if err != nil && (got != nil || strings.Contains(c.err, "too large") != errors.Is(err, ErrTooLarge)) {
			t.Errorf("YAML(%.50q) = %.100s with error %v, want no text, and ErrTooLarge only for too large text", c.text, got, err)
		}
	}
}

// Parsing uses bounded memory for any text, measured as the sum of all allocations.
func TestYAMLMemoryIsBounded(t *testing.T) {
	if testing.CoverMode() != "" {
		t.Skip("coverage changes the allocations")
	}
	for name, text := range map[string]string{
		"flow":     "a: [" + strings.Repeat("a,", maxYAMLs-10) + "]",
		"pairs":    "a: {" + strings.Repeat("a,", 1000) + "}",
		"empties":  "a: [" + strings.Repeat("{},", maxYAMLs/2-10) + "]",
		"a text":   "a: " + strings.Repeat("b ", MaxYAML/2-10),
		"quoted":   "a: \"" + strings.Repeat("b ", MaxYAML/2-10) + "\"",
		"comments": strings.Repeat("#"+strings.Repeat(" ", 50)+"\n", MaxYAML/52),
		"anchors":  "a: [" + strings.Repeat("&a b,", maxYAMLs-10) + "]",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := YAML([]byte(text))
		runtime.ReadMemStats(&after)
		took := float64(after.TotalAlloc-before.TotalAlloc) / (1 << 20)
		t.Logf("%s: %.1f MiB, %v", name, took, err)
		if took > 24 {
			t.Errorf("%s: YAML allocated %.1f MiB, want at most 24", name, took)
		}
	}
}

func FuzzAsking(f *testing.F) {
	for _, s := range []string{
		`{` + meta + `,"spec":{"containers":[{"name":"c","resources":{"limits":{"memory":"1Gi"}}}]}}`, "metadata: {uid: a, namespace: b, name: c}\n",
		"metadata:\n  uid: &a b\n  name: *a\n", "a: 1\n---\nb: 2\n", "spec:\n  containers:\n  - name: c\n    resources: {requests: {cpu: 1e3}}\n",
		"? a\n: b\n", "a: !!binary aGVsbG8=\nb: !x y\n", "a: 0x10\nb: 2001-01-01\n<<: {c: d}\n", "---\n# a\n---\na: b\n---\n", "\xef\xbb\xbfa: b", "%YAML 1.1\n---\na: b",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		began := time.Now()
		raw, err := YAML(text)
		if err != nil && strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("error of more than one line: %q", err)
		}
		if err == nil {
			if !json.Valid(raw) {
				t.Errorf("YAML returned invalid JSON: %s", raw)
			}
			if again, err := sigsyaml.YAMLToJSON(text); err != nil || !bytes.Equal(again, raw) && string(again) != "null" { // kubectl continues after null
				t.Errorf("kubectl's JSON is %s (%v), ours %s", again, err, raw)
			}
			if len(raw) > 7*len(text)+16 { // a control character becomes six characters of JSON
				t.Errorf("%d bytes of YAML became %d of JSON", len(text), len(raw))
			}
		}
		for _, given := range [][]byte{text, raw} {
			p, _, err := DecodeForAdmission(given)
			if err != nil || Named(p) != nil {
				continue
			}
			once, err := json.Marshal(p)
			if err != nil {
				t.Fatal(err)
			}
			q, unknown, err := DecodeForAdmission(once)
			if err != nil || len(unknown) > 0 || Size(q) > 2*MaxAsking {
				t.Errorf("accepted text %s, encoded as %s, is rejected: %v, unknown fields %v", given, once, unknown, err)
			} else if twice, _ := json.Marshal(q); !reflect.DeepEqual(once, twice) {
				t.Errorf("encoding changed from %s to %s", once, twice)
			}
		}
		if d := time.Since(began); d > tooLong {
			t.Errorf("decoding took %v, want at most %v", d, tooLong)
		}
	})
}
