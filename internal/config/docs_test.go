package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fieldOfDocs is a row of a table of docs' configuration.md. One row may have several fields, and then as many defaults, or one for all.
type fieldOfDocs struct {
	byDefault string
	meaning   string
}

var backticks = regexp.MustCompile("`([^`]+)`")

// fieldsOfDocs reads the rows of the page, by the fields' names.
func fieldsOfDocs(t *testing.T) map[string]fieldOfDocs {
	t.Helper()
	var page []byte
	for _, path := range []string{"use/configuration.md", "configuration.md"} {
		if text, err := os.ReadFile(filepath.Join("../../docs", path)); err == nil {
			page = text
			break
		}
	}
	if page == nil {
		t.Fatal("docs has no page configuration.md")
	}
	rows := map[string]fieldOfDocs{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 3 {
			continue
		}
		names := backticks.FindAllStringSubmatch(cells[0], -1)
		defaults := strings.Split(strings.ReplaceAll(strings.TrimSpace(cells[1]), "`", ""), ", ")
		for i, name := range names {
			byDefault := strings.Join(defaults, ", ")
			if len(names) > 1 && len(defaults) == len(names) {
				byDefault = defaults[i]
			}
			if _, twice := rows[name[1]]; twice {
				t.Errorf("%s has two rows", name[1])
			}
			rows[name[1]] = fieldOfDocs{byDefault, cells[2]}
		}
	}
	return rows
}

// defaultsInWords are what the page says of fields whose default is no value.
var defaultsInWords = map[string]string{
	"disk": "act; observe beside a kubelet", "gc": "act; observe beside a kubelet",
	"imageServiceEndpoint": "containerRuntimeEndpoint", "cgroupRoot": "the hierarchy's root",
}

// defaultText is a default as the page writes it.
func defaultText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Duration:
		text := regexp.MustCompile(`([hm])0[ms]`).ReplaceAllString(time.Duration(x).String(), "$1")
		return regexp.MustCompile(`([hm])0[ms]`).ReplaceAllString(text, "$1")
	case map[string]string:
		var pairs []string
		for key, value := range x {
			pairs = append(pairs, key+": "+value)
		}
		slices.Sort(pairs)
		return strings.Join(pairs, ", ")
	case ContainerGC:
		var pairs []string
		for i := range v.NumField() {
			pairs = append(pairs, v.Type().Field(i).Tag.Get("yaml")+": "+defaultText(v.Field(i)))
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	case []string:
		if len(x) == 0 {
			return ""
		}
		return "[" + strings.Join(x, ", ") + "]"
	}
	if v.Kind() == reflect.Slice && v.Len() == 0 || v.Kind() == reflect.String && v.Len() == 0 {
		return ""
	}
	return fmt.Sprint(v.Interface())
}

// Every field has a row on the page with its default, and the page has no row of a field that is not.
func TestThePageHasEveryField(t *testing.T) {
	page := fieldsOfDocs(t)
	defaults := reflect.ValueOf(Default()).Elem()
	for i := range defaults.NumField() {
		field := defaults.Type().Field(i)
		name := field.Tag.Get("yaml")
		if name == "-" {
			continue
		}
		row, ok := page[name]
		if !ok {
			t.Errorf("%s has no row", name)
			continue
		}
		delete(page, name)
		got, _, _ := strings.Cut(row.byDefault, "; ") // after it comes what a kubelet's file has instead
		want := defaultText(defaults.Field(i))
		switch {
		case defaultsInWords[name] != "":
			got, want = row.byDefault, defaultsInWords[name]
		case want == "":
			want = "none"
		case field.Type == reflect.TypeFor[map[string]string]():
			pairs := strings.Split(got, ", ")
			slices.Sort(pairs)
			got = strings.Join(pairs, ", ")
		}
		if got != want {
			t.Errorf("%s: the page says that the default is %q, it is %q", name, got, want)
		}
	}
	for name := range page {
		if name != "apiVersion" && name != "kind" {
			t.Errorf("the page has a row of %s, which is no field", name)
		}
	}
}

// What a kubelet's file changes is on the page too.
func TestThePageHasTheDefaultsOfAKubeletsFile(t *testing.T) {
	page := fieldsOfDocs(t)
	own, kubelets := reflect.ValueOf(defaults(KindAgent)).Elem(), reflect.ValueOf(defaults(KindKubelet)).Elem()
	for i := range own.NumField() {
		if reflect.DeepEqual(own.Field(i).Interface(), kubelets.Field(i).Interface()) {
			continue
		}
		name := own.Type().Field(i).Tag.Get("yaml")
		if want := defaultText(kubelets.Field(i)) + " in a kubelet's file"; !strings.Contains(page[name].byDefault, want) {
			t.Errorf("%s: the page says %q, and not %q", name, page[name].byDefault, want)
		}
	}
}
