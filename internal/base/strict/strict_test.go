package strict

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

func TestFieldError(t *testing.T) {
	cause := errors.New("missing")
	for want, e := range map[string]*FieldError{
		"missing":                     {Err: cause},
		"a: missing":                  {Field: "a", Err: cause},
		"line 3: missing":             {Line: 3, Err: cause},
		"line 3: a[0]: missing":       {Line: 3, Field: "a[0]", Err: cause},
		"f.json: line 3: a: missing":  {File: "f.json", Line: 3, Field: "a", Err: cause},
		"f.json: missing":             {File: "f.json", Err: cause},
		"pods[1].uid: is there twice": NewFieldError("pods[1].uid", "is there twice"),
	} {
		if got := e.Error(); got != want {
			t.Errorf("text of a FieldError = %q, want %q", got, want)
		}
	}
	if e := (&FieldError{Field: "a", Err: cause}); !errors.Is(e, cause) {
		t.Error("FieldError does not wrap its cause")
	}
}

func TestNearestLine(t *testing.T) {
	l := Lines{"a": 2, "a: b": 3, "c.d": 4}
	for _, c := range []struct {
		path string
		want int
	}{{"a", 2}, {"a: b", 3}, {"a: b: x: y", 3}, {"a: c", 2}, {"x", 1}, {"", 1}} {
		if got := l.Nearest(strings.Split(c.path, ": "), ": "); got != c.want {
			t.Errorf("line of %q = %d, want %d", c.path, got, c.want)
		}
	}
	if got := l.Nearest([]string{"c", "d", "e"}, "."); got != 4 {
		t.Errorf("line of c.d.e = %d, want 4", got)
	}
}

func TestDocument(t *testing.T) {
	const two = "a: b\n---\nc: d\n"
	for _, c := range []struct {
		file       Document
		text, want string
	}{
		{Document{}, "", "line 1: the file is empty: want apiVersion: v1, kind: File"},
		{Document{}, "- a\n", `line 1: want a mapping such as "kind: File"`},
		{Document{}, "a: [1\n", "not YAML: yaml: line 1: did not find expected ',' or ']'"},
		{Document{}, two, "line 2: more than one document in the file"},
		{Document{FurtherFirst: true}, two, "line 3: more than one document in the file"},
		{Document{}, "a: b\n---\n---\nc: d\n", "line 3: more than one document in the file"},
		{Document{SecondOnly: true}, "a: b\n---\n---\nc: d\n", "<nil>"},
		{Document{}, "a: b\n---\n", "<nil>"},
		{Document{}, `{"a": "unix:\/\/\/run", "b\/": "\\\/"}`, "<nil>"},
		{Document{}, `a: "\/"`, "not YAML: yaml: found unknown escape character"},
		{Document{}, "a: b\n---\n\tc\n", "not YAML: yaml: line 3: found character that cannot start any token"},
	} {
		c.file.APIVersion, c.file.Kind = "v1", "File"
		if _, err := c.file.Root([]byte(c.text)); fmt.Sprint(err) != c.want {
			t.Errorf("error of Root(%q)\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

// JSON may escape slashes, as PHP and some templates do.
func TestDocumentOfJSON(t *testing.T) {
	root, err := (&Document{}).Root([]byte(`{"a": "unix:\/\/\/run\n", "b": "\\/ \\\/", "c": "\u002f"}`))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := root.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"a": "unix:///run\n", "b": `\/ \/`, "c": "/"}; !maps.Equal(got, want) {
		t.Errorf("fields of a JSON document = %q, want %q", got, want)
	}
}

// sample is a file for a Decoder and a Checker.
type sample struct {
	Name   string            `yaml:"name" json:"name"`
	Count  int32             `yaml:"count" json:"count"`
	Share  float64           `yaml:"share" json:"share"`
	On     bool              `yaml:"on" json:"on"`
	Wait   time.Duration     `yaml:"wait" json:"wait"`
	Labels map[string]string `yaml:"labels" json:"labels"`
	Names  []string          `yaml:"names" json:"names"`
	Inner  struct {
		Depth int32 `yaml:"depth" json:"depth"`
	} `yaml:"inner" json:"inner"`
}

func root(t *testing.T, text string) *yaml.Node {
	t.Helper()
	n, err := (&Document{}).Root([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func decode(n *yaml.Node, d *Decoder) (*sample, error) {
	into := &sample{Name: "default"}
	d.Lines, d.Describe = Lines{}, func(n *yaml.Node) string { return fmt.Sprintf("%q", n.Value) }
	d.Special = func(n *yaml.Node, into reflect.Value) (string, bool) {
		v, ok := into.Addr().Interface().(*time.Duration)
		if !ok {
			return "", false
		}
		var err error
		*v, err = time.ParseDuration(n.Value)
		return "a duration", err == nil
	}
	target := reflect.ValueOf(into).Elem()
	known := Index(target.Type())
	return into, d.Mapping(n, nil, func(key, value *yaml.Node) error { return d.Member(key, value, target, known, nil) })
}

func TestDecoder(t *testing.T) {
	got, err := decode(root(t, `
name: ~
count: 3
share: 1
on: true
wait: 1m
labels: {a: 1, b: ~}
names: [x, 2]
inner: {depth: 4}
`), &Decoder{})
	if err != nil {
		t.Fatal(err)
	}
	want := &sample{Name: "default", Count: 3, Share: 1, On: true, Wait: time.Minute,
		Labels: map[string]string{"a": "1", "b": ""}, Names: []string{"x", "2"}}
	want.Inner.Depth = 4
	if !reflect.DeepEqual(got, want) {
		t.Errorf("decoded sample = %+v, want %+v", got, want)
	}
}

func TestDecoderErrors(t *testing.T) {
	for _, c := range []struct {
		d          Decoder
		text, want string
	}{
		{Decoder{}, "nmae: a", `line 1: unknown field "nmae": did you mean "name"?`},
		{Decoder{}, "\ninner:\n  dept: 1", `line 3: inner: unknown field "dept": did you mean "depth"?`},
		{Decoder{}, "inner: {depth: 1.5}", `line 1: inner: depth: want a whole number, got "1.5"`},
		{Decoder{}, "inner: 3", `line 1: inner: want a mapping, got "3"`},
		{Decoder{}, "labels: [a]", `line 1: labels: want a mapping, got ""`},
		{Decoder{}, "labels: {a: {b: c}}", `line 1: labels: a: want text, got ""`},
		{Decoder{}, "names: a", `line 1: names: want a list, got "a"`},
		{Decoder{}, "names: [a, [b]]", `line 1: names: 1: want text, got ""`},
		{Decoder{}, "name: true", `line 1: name: want text, got "true"`},
		{Decoder{BoolAsText: true}, "name: true", "<nil>"},
		{Decoder{}, "on: 3", `line 1: on: want true or false, got "3"`},
		{Decoder{}, "share: x", `line 1: share: want a number, got "x"`},
		{Decoder{}, "wait: 3", `line 1: wait: want a duration, got "3"`},
		{Decoder{}, "name: a\nname: b", "line 2: name is set a second time, first on line 1"},
		{Decoder{}, "labels: {a: b, a: c}", "line 1: labels: a is set a second time, first on line 1"},
		{Decoder{OnDuplicate: func(string, int, int) error { return nil }}, "name: a\nname: b", "<nil>"},
		{Decoder{}, "<<: {name: a}", `line 1: unknown field "<<"`},
		{Decoder{PlainKeys: true}, "<<: {name: a}", "line 1: want a plain field name"},
		{Decoder{PlainKeys: true}, "? [a]\n: b", "line 1: want a plain field name"},
		{Decoder{IgnoreUnknown: func(_ *yaml.Node, path []string) bool { return len(path) == 2 }}, "inner: {x: 1}\ny: 2", `line 2: unknown field "y"`},
	} {
		if _, err := decode(root(t, c.text), &c.d); fmt.Sprint(err) != c.want {
			t.Errorf("error of decoding %q\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

func TestCheckerCollectsAllErrors(t *testing.T) {
	c := &Checker{Lines: Lines{}}
	c.Check(root(t, `
name: true
cuont: 1
count: 99999999999
on: YES
names: {}
labels: []
inner: {depth: x, depth: 1, <<: {depth: 1}, ? [a] : b}
`), reflect.TypeFor[sample](), nil)
	want := []string{
		`line 2: name: "true": want text: put it in quotes if it looks like another type`,
		`line 3: unknown field "cuont": did you mean "count"?`,
		`line 4: count: "99999999999": want a whole number of at most 32 bits`,
		`line 6: names: want a list`,
		`line 7: labels: want a mapping`,
		`line 8: inner.depth: "x": want a whole number of at most 32 bits`,
		`line 8: inner: duplicate field "depth"`,
		`line 8: inner: merge keys not supported: write the fields`,
		`line 8: inner: want a name as key`,
	}
	var got []string
	for _, e := range c.Errors {
		got = append(got, e.Error())
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("errors of the Checker\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if c.Lines["inner.depth"] != 8 {
		t.Errorf("line of inner.depth = %d, want 8", c.Lines["inner.depth"])
	}
}

func TestCheckerIsBounded(t *testing.T) {
	text := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for name := 'b'; name < 'h'; name++ {
		text += fmt.Sprintf("%c: &%c [%s]\n", name, name, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", name-1), 10), ", "))
	}
	type list []list
	c := &Checker{Lines: Lines{}}
	c.Check(root(t, text), reflect.TypeFor[map[string]list](), nil)
	if n := len(c.Errors); n == 0 || c.nodes < maxNodes ||
		!strings.Contains(c.Errors[n-1].Error(), "too many or too deeply nested values: at most 100000, 100 deep") {
		t.Errorf("%d values checked with %d errors, want the bound and its error", c.nodes, n)
	}
}

func TestParseTime(t *testing.T) {
	if at, err := ParseTime("2026-01-02T15:04:05.5Z"); err != nil || at.Nanosecond() != 5e8 {
		t.Errorf("ParseTime with a fraction = %v, %v; want half a second", at, err)
	}
	const want = `"today" is not an RFC 3339 time such as 2026-01-02T15:04:05Z`
	if _, err := ParseTime("today"); fmt.Sprint(err) != want {
		t.Errorf("error of ParseTime(today) = %v, want %s", err, want)
	}
	for text, want := range map[string]string{
		"": "missing", "today": want, "1969-12-31T23:59:59Z": "1969-12-31T23:59:59Z is before 1970", "1970-01-01T00:00:00Z": "<nil>",
	} {
		if _, err := RequireTime(text); fmt.Sprint(err) != want {
			t.Errorf("error of RequireTime(%q) = %v, want %s", text, err, want)
		}
	}
}
