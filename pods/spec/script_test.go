package spec

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"sigs.k8s.io/yaml"
)

// The scripts in testdata are manifests with what Parse returns for them; go test ./pods/spec
// -rewrite writes it, to be reviewed as a diff.
//
//	parse [node=NAME]  the errors, or the objects with their lines
//	show               the defaulted objects
//	bind node=NAME     the pods as they run on a node
//
// <EMPTY> stands for an empty text.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("found the scripts %v, error %v, want at least one", paths, err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				node := ""
				d.MaybeScanArgs(t, "node", &node)
				return run(t, d.Cmd, strings.ReplaceAll(d.Input, "<EMPTY>", ""), node)
			})
		})
	}
}

func run(t *testing.T, command, text, node string) string {
	objects, errs := Parse([]byte(text), node)
	var b strings.Builder
	for _, e := range errs {
		fmt.Fprintln(&b, e)
	}
	for _, o := range objects {
		switch command {
		case "parse":
			fmt.Fprintf(&b, "line %d: %s\n", o.Line, o.Key)
		case "bind":
			uid := o.Pod.UID
			if uid == "" {
				uid = UID(o.Namespace, o.Name, node)
			}
			b.WriteString(document(t, Bind(o.Pod, uid, node)))
		case "show":
			switch {
			case o.Pod != nil:
				b.WriteString(document(t, o.Pod))
			case o.ConfigMap != nil:
				b.WriteString(document(t, o.ConfigMap))
			default:
				b.WriteString(document(t, o.Secret))
			}
		default:
			t.Fatalf("command of the script = %q, want parse, show or bind", command)
		}
	}
	return b.String()
}

// document returns an object as YAML, without the fields that every object has.
func document(t *testing.T, o any) string {
	text, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return "- " + strings.TrimSpace(strings.ReplaceAll(string(text), "\n", "\n  ")) + "\n"
}
