package config

import (
	"flag"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"jettison/eviction"
)

// generate writes the files generated from the comments of fields ("make generate").
var generate = flag.Bool("generate", false, "write docs/reference/configuration.md and default.yaml")

const (
	referencePath = "../../../docs/reference/configuration.md"
	defaultPath   = "default.yaml"
)

// fieldDoc is a field, or a part of one, with its comment.
type fieldDoc struct {
	path  []string // of keys
	kind  string   // type of its value
	text  string   // of the comment, without the field's name
	start bool     // a change takes effect at the next start
	own   bool     // a kubelet's file cannot set it
	value reflect.Value
	under []fieldDoc
}

// comments returns the comments of the fields of all structs of fields.go, by struct and field,
// each on one line.
func comments(t *testing.T) map[string]string {
	t.Helper()
	file, err := goparser.ParseFile(token.NewFileSet(), "fields.go", nil, goparser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				text, _ := strings.CutPrefix(strings.Join(strings.Fields(f.Doc.Text()), " "), f.Names[0].Name+": ")
				out[spec.Name.Name+"."+f.Names[0].Name] = text
			}
		}
		return false
	})
	return out
}

// kinds are the names of field types in the documentation.
var kinds = map[reflect.Type]string{
	reflect.TypeFor[map[string]string](): "mapping", reflect.TypeFor[Duration](): "duration", reflect.TypeFor[bool](): "true or false",
	reflect.TypeFor[int32](): "whole number", reflect.TypeFor[float64](): "number", reflect.TypeFor[[]string](): "list of texts",
	reflect.TypeFor[[]Taint](): "list of taints", reflect.TypeFor[ContainerGC](): "mapping",
	reflect.TypeFor[Descheduling](): "mapping",
}

func fieldDocs(t *testing.T) (out []fieldDoc) {
	t.Helper()
	texts := comments(t)
	describe := func(of reflect.Value, i int, path ...string) fieldDoc {
		f := of.Type().Field(i)
		d := fieldDoc{path: append(path, f.Tag.Get("yaml")), kind: kinds[f.Type], own: f.Tag.Get("own") != "", value: of.Field(i),
			text: texts[of.Type().Name()+"."+f.Name], start: f.Tag.Get("start") != ""}
		if d.kind == "" {
			d.kind = "text"
		}
		if d.text == "" || !strings.HasSuffix(d.text, ".") {
			t.Errorf("%s: want a comment \"// %s: what it is for.\" above it, got %q", f.Name, f.Name, d.text)
		}
		return d
	}
	all := reflect.ValueOf(Default()).Elem()
	for i := range all.NumField() {
		if all.Type().Field(i).Tag.Get("yaml") == "-" {
			continue
		}
		d := describe(all, i)
		if kinds[d.value.Type()] == "mapping" && d.value.Kind() == reflect.Struct {
			for j := range d.value.NumField() {
				d.under = append(d.under, describe(d.value, j, d.path...))
			}
		}
		out = append(out, d)
	}
	return out
}

// valueText returns a default in the form of a file.
func valueText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Duration:
		text := x.String()
		for _, zero := range []string{"m0s", "h0m"} {
			if rest, ok := strings.CutSuffix(text, zero); ok {
				text = rest + zero[:1]
			}
		}
		return text
	case map[string]string:
		return "{}"
	case []string:
		return "[" + strings.Join(x, ", ") + "]"
	case []Taint:
		return "[]"
	case bool, int32, float64:
		return fmt.Sprint(x)
	}
	if v.String() == "" {
		return `""`
	}
	return v.String()
}

// foundByItself is the field with a default that the agent finds on the node.
const foundByItself = "containerRuntimeEndpoint"

// yamlOf returns default.yaml.
func yamlOf(docs []fieldDoc) string {
	var b strings.Builder
	b.WriteString("# Every field of jettison's configuration, with its default. Keep only the fields that you change: a field that this file does not set\n" +
		"# has the kubelet's value if the node has a kubelet, else the default. See docs/start/configure.md and docs/reference/configuration.md.\n" +
		"apiVersion: " + APIVersionAgent + "\nkind: " + KindAgent + "\n")
	signals := []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"}
	for _, d := range docs {
		b.WriteString("\n" + wrapped(d, ""))
		switch name := d.path[0]; {
		case name == "evictionHard":
			fmt.Fprintf(&b, "%s:\n", name)
			for _, s := range signals {
				fmt.Fprintf(&b, "  %s: %s\n", s, d.value.MapIndex(reflect.ValueOf(s)))
			}
		case name == foundByItself:
			fmt.Fprintf(&b, "%s: \"\"\n", name)
		case d.under != nil:
			fmt.Fprintf(&b, "%s:\n", name)
			for _, u := range d.under {
				b.WriteString(wrapped(u, "  "))
				fmt.Fprintf(&b, "  %s: %s\n", u.path[1], valueText(u.value))
			}
		default:
			fmt.Fprintf(&b, "%s: %s\n", name, valueText(d.value))
		}
	}
	return b.String()
}

// more matches a link to another page.
var more = regexp.MustCompile(`(use|start|operate|reference)/([\w-]+\.md)((?:#[\w-]+)?)`)

// wrapped returns a field's description as a YAML comment.
func wrapped(d fieldDoc, indent string) string {
	text := more.ReplaceAllString(d.text, "docs/$1/$2$3")
	if d.start {
		text += " A change takes effect at the next start."
	}
	line, out := indent+"#", ""
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 110 {
			out, line = out+line+"\n", indent+"#"
		}
		line += " " + word
	}
	return out + line + "\n"
}

// pageOf returns docs/reference/configuration.md.
func pageOf(docs []fieldDoc) string {
	var b strings.Builder
	b.WriteString("# Configuration: every field\n\n<!-- Generated from the comments in internal/node/config/fields.go by \"make generate\". -->\n\n" +
		"Reference for operators. [configure.md](../start/configure.md) describes the common tasks. `jettison config default` prints all\n" +
		"fields as a file. `jettison config print` prints the values in effect on a node, with their origins.\n\n" +
		"The column *change* shows when a changed value takes effect: *on reload*, while the agent runs; *next start*, after a restart.\n" +
		"The agent logs a warning until the restart.\n\n")
	kubelets := reflect.ValueOf(defaults(KindKubelet)).Elem()
	section := func(title string, own bool) {
		b.WriteString("## " + title + "\n\n| field | type | default | change | meaning |\n|---|---|---|---|---|\n")
		for _, d := range docs {
			if d.own == own {
				b.WriteString(rowOf(d, kubelets))
				for _, u := range d.under {
					b.WriteString(rowOf(u, kubelets))
				}
			}
		}
	}
	section("Fields shared with the kubelet", false)
	b.WriteString("\n")
	section("Fields of jettison only", true)
	return b.String()
}

func rowOf(d fieldDoc, kubelets reflect.Value) string {
	byDefault := "`" + valueText(d.value) + "`"
	if v, ok := d.value.Interface().(map[string]string); ok && len(v) > 0 {
		var pairs []string
		for _, t := range (&Loaded{Config: &Config{EvictionHard: v}}).Settings() {
			if t.Field[0] == "evictionHard" {
				pairs = append(pairs, fmt.Sprintf("`%s: %s`", t.Field[1], t.Value))
			}
		}
		byDefault = strings.Join(pairs, ", ")
	}
	if d.path[0] == foundByItself {
		byDefault = "found"
	}
	if d.under != nil {
		byDefault = ""
	}
	if len(d.path) == 1 && d.under == nil {
		for i := range kubelets.NumField() {
			other := kubelets.Field(i)
			if kubelets.Type().Field(i).Tag.Get("yaml") == d.path[0] && d.own && valueText(other) != valueText(d.value) {
				byDefault += "; `" + valueText(other) + "` in a kubelet's file"
			}
		}
	}
	change := "on reload"
	if d.start {
		change = "next start"
	}
	text := more.ReplaceAllStringFunc(strings.ReplaceAll(d.text, "|", "\\|"), func(at string) string {
		m := more.FindStringSubmatch(at)
		folder := "../" + m[1] + "/"
		if m[1] == "reference" {
			folder = ""
		}
		return "[" + m[2] + "](" + folder + m[2] + m[3] + ")"
	})
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", strings.Join(d.path, ".`<br>`"), d.kind, byDefault, change, text)
}

// The page and the file match the comments of fields.
func TestWhatIsGeneratedIsFresh(t *testing.T) {
	docs := fieldDocs(t)
	for path, want := range map[string]string{referencePath: pageOf(docs), defaultPath: yamlOf(docs)} {
		if *generate {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s is stale: run \"make generate\" (%v)\n%s", path, err, cmp.Diff(string(got), want))
		}
	}
}

// The complete default file is valid and equals the defaults.
func TestDefaultFile(t *testing.T) {
	l, err := Parse([]byte(DefaultFile))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), l.Config, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Config{}, "Sysctls", "Thresholds")); diff != "" {
		t.Error(diff)
	}
	same := func(a, b eviction.Threshold) bool { return reflect.DeepEqual(a, b) }
	if !cmp.Equal(Default().Thresholds, l.Thresholds, cmp.Comparer(same)) || len(l.Warnings) > 0 {
		t.Errorf("thresholds of the default file = %v, want %v; warnings %q", l.Thresholds, Default().Thresholds, l.Warnings)
	}
	for i := range reflect.TypeFor[Config]().NumField() {
		name := reflect.TypeFor[Config]().Field(i).Tag.Get("yaml")
		if name != "-" && !regexp.MustCompile(`(?m)^`+name+`:`).MatchString(DefaultFile) {
			t.Errorf("default.yaml has no field %s", name)
		}
	}
}

// Every link of a comment to another page has a target.
func TestLinksOfComments(t *testing.T) {
	for _, d := range fieldDocs(t) {
		for _, m := range more.FindAllStringSubmatch(d.text, -1) {
			text, err := os.ReadFile("../../../docs/" + m[1] + "/" + m[2])
			if err != nil {
				t.Error(err)
				continue
			}
			found := m[3] == ""
			for line := range strings.Lines(string(text)) {
				title := strings.ToLower(strings.TrimLeft(strings.TrimSpace(line), "# "))
				anchor := "#" + strings.ReplaceAll(regexp.MustCompile(`[^\w -]`).ReplaceAllString(title, ""), " ", "-")
				found = found || strings.HasPrefix(line, "#") && anchor == m[3]
			}
			if !found {
				t.Errorf("comment of %s: docs/%s/%s has no anchor %s", d.path[0], m[1], m[2], m[3])
			}
		}
	}
}
