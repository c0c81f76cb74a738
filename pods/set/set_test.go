package set

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"jettison/pods/spec"
)

// pod returns a manifest for "NAME IMAGE [UID]".
func pod(text string) string {
	f := append(strings.Fields(text), "")
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, uid: '%s'}\nspec: {containers: [{name: c, image: '%s'}]}\n---\n",
		f[0], f[2], f[1])
}

// read returns a file. The text "!": it cannot be read; "=": it is unchanged; else pods, separated
// by commas, or another text.
func read(name, text string) File {
	switch {
	case text == "!":
		return File{Name: name, Err: errors.New("read: input/output error")}
	case text == "=":
		return File{Name: name, Unchanged: true}
	}
	var b strings.Builder
	for p := range strings.SplitSeq(text, ",") {
		if len(strings.Fields(p)) < 2 {
			return File{Name: name, Text: []byte(text)}
		}
		b.WriteString(pod(p))
	}
	return File{Name: name, Text: []byte(b.String())}
}

var host = Host{Node: "n1", UIDs: map[spec.Key]types.UID{{Kind: "Pod", Namespace: "default", Name: "taken"}: "of-kubelet"}}

// describeSet returns the pods, "NAME IMAGE FILE" each, "incomplete", and the problems.
func describeSet(s *Set) (out []string) {
	for _, p := range s.Pods() {
		out = append(out, fmt.Sprintf("%s %s %s", p.Name, p.Bound.Spec.Containers[0].Image, p.File))
	}
	if !s.Complete {
		out = append(out, "incomplete")
	}
	for i := range s.Problems {
		out = append(out, "! "+s.Problems[i].Error())
	}
	return out
}

const keeps = "; the last valid version stays in use"

// Each step is a reading of the folder, by file; the file "" is an error of the folder, and "id"
// its ID.
func TestNext(t *testing.T) {
	const (
		broken = "! a.yaml: line 1: want an object such as \"kind: Pod\", got text"
		twice  = "! a.yaml, b.yaml: Pod default/p is in each of these files: remove it from all but one"
	)
	replaced := "! folder: " + errReplaced.Error() + keeps
	type step struct {
		files map[string]string
		want  []string
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"add, edit, remove", []step{
			{nil, nil},
			{map[string]string{"a.yaml": "p 1"}, []string{"p 1 a.yaml"}},
			{map[string]string{"a.yaml": "="}, []string{"p 1 a.yaml"}},
			{map[string]string{"a.yaml": "p 2,q 1"}, []string{"p 2 a.yaml", "q 1 a.yaml"}},
			{map[string]string{"a.yaml": "q 1"}, []string{"q 1 a.yaml"}},
			{nil, nil},
		}},
		{"a broken file keeps its pods (A11)", []step{
			{map[string]string{"a.yaml": "p 1,q 1", "b.yaml": "r 1"}, []string{"p 1 a.yaml", "q 1 a.yaml", "r 1 b.yaml"}},
			{map[string]string{"a.yaml": "x", "b.yaml": "r 2"}, []string{"p 1 a.yaml", "q 1 a.yaml", "r 2 b.yaml", broken + keeps}},
			{map[string]string{"a.yaml": "x", "b.yaml": "r 2"}, []string{"p 1 a.yaml", "q 1 a.yaml", "r 2 b.yaml", broken + keeps}},
			{map[string]string{"a.yaml": "!", "b.yaml": "="}, []string{"p 1 a.yaml", "q 1 a.yaml", "r 2 b.yaml",
				"! a.yaml: read: input/output error" + keeps}},
			{map[string]string{"a.yaml": "p 1", "b.yaml": "="}, []string{"p 1 a.yaml", "r 2 b.yaml"}},
			{map[string]string{"b.yaml": "="}, []string{"r 2 b.yaml"}},
		}},
		{"an empty file may be half written", []step{
			{map[string]string{"a.yaml": "p 1"}, []string{"p 1 a.yaml"}},
			{map[string]string{"a.yaml": ""}, []string{"p 1 a.yaml",
				"! a.yaml: line 1: no object: want a Pod, ConfigMap or Secret; to remove pods, remove the file" + keeps}},
		}},
		{"a file that was never valid may have any pod", []step{
			{map[string]string{"a.yaml": "x", "b.yaml": "p 1"}, []string{"p 1 b.yaml", "incomplete", broken}},
			{map[string]string{"a.yaml": "!", "b.yaml": "="}, []string{"p 1 b.yaml", "incomplete", "! a.yaml: read: input/output error"}},
			{map[string]string{"a.yaml": "q 1", "b.yaml": "="}, []string{"p 1 b.yaml", "q 1 a.yaml"}},
		}},
		{"an unreadable folder keeps all", []step{
			{map[string]string{"": "stat: no such file or directory"}, []string{"incomplete", "! folder: stat: no such file or directory"}},
			{map[string]string{"a.yaml": "p 1"}, []string{"p 1 a.yaml"}},
			{map[string]string{"": "stat: no such file or directory"}, []string{"p 1 a.yaml",
				"! folder: stat: no such file or directory" + keeps}},
			{map[string]string{"a.yaml": "="}, []string{"p 1 a.yaml"}},
		}},
		{"a folder that is replaced (A13)", []step{
			{map[string]string{"id": "1", "a.yaml": "p 1", "b.yaml": "q 1"}, []string{"p 1 a.yaml", "q 1 b.yaml"}},
			{map[string]string{"id": "2"}, []string{"p 1 a.yaml", "q 1 b.yaml", replaced}},
			{map[string]string{"id": "2"}, []string{"p 1 a.yaml", "q 1 b.yaml", replaced}},
			{map[string]string{"id": "1", "a.yaml": "=", "b.yaml": "="}, []string{"p 1 a.yaml", "q 1 b.yaml"}},
			{map[string]string{"id": "2", "c.yaml": "q 1"}, []string{"q 1 c.yaml"}},
			{map[string]string{"id": "2"}, nil},
		}},
		{"a renamed file (A02)", []step{
			{map[string]string{"a.yaml": "p 1"}, []string{"p 1 a.yaml"}},
			{map[string]string{"b.yaml": "p 1"}, []string{"p 1 b.yaml"}},
		}},
		{"two files with the same pod (A10)", []step{
			{map[string]string{"b.yaml": "p 1"}, []string{"p 1 b.yaml"}},
			{map[string]string{"a.yaml": "p 2", "b.yaml": "p 1"}, []string{"p 1 b.yaml", twice + keeps}},
			{map[string]string{"a.yaml": "p 2", "b.yaml": "p 3,q 1"}, []string{"p 1 b.yaml", "q 1 b.yaml", twice + keeps}},
			{map[string]string{"a.yaml": "p 2"}, []string{"p 2 a.yaml"}},
		}},
		{"two files with the same pod at the start", []step{
			{map[string]string{"a.yaml": "p 2", "b.yaml": "p 1"}, []string{"incomplete", twice}},
			{map[string]string{"a.yaml": "p 1", "b.yaml": "="}, []string{"p 1 a.yaml", twice}},
			{map[string]string{"b.yaml": "="}, []string{"p 1 b.yaml"}},
		}},
		{"two pods with one UID", []step{
			{map[string]string{"a.yaml": "p 1 u"}, []string{"p 1 a.yaml"}},
			{map[string]string{"a.yaml": "p 2 u", "b.yaml": "q 1 u"}, []string{"p 2 a.yaml", "incomplete",
				"! a.yaml, b.yaml: Pod default/p, Pod default/q have the same UID u: give each its own metadata.uid, or none" + keeps}},
			{map[string]string{"a.yaml": "p 2 v", "b.yaml": "="}, []string{"p 2 a.yaml", "q 1 b.yaml"}},
			{map[string]string{"a.yaml": "=", "b.yaml": "q 1 v"}, []string{"p 2 a.yaml", "q 1 b.yaml", "incomplete",
				"! a.yaml, b.yaml: Pod default/p, Pod default/q have the same UID v: give each its own metadata.uid, or none" + keeps}},
		}},
	} {
		var s *Set
		for i, step := range c.steps {
			var folder Folder
			for name, text := range step.files {
				switch name {
				case "":
					folder.Err = errors.New(text)
				case "id":
					folder.ID = text
				default:
					folder.Files = append(folder.Files, read(name, text))
				}
			}
			s = Next(s, folder, host)
			if got := describeSet(s); !slices.Equal(got, step.want) {
				t.Errorf("%s, reading %d:\n got %q\nwant %q", c.name, i, got, step.want)
			}
		}
	}
}

// The bound pod is the same pointer while nothing changes, so that nothing is done.
func TestBoundPods(t *testing.T) {
	key := spec.Key{Kind: "Pod", Namespace: "default", Name: "p"}
	first := Next(nil, Folder{Files: []File{read("a.yaml", "p 1,taken 1,own 1 u")}}, host)
	renamed := Next(first, Folder{Files: []File{{Name: "b.yaml", Text: []byte("# comment\n" + pod("p 1"))}}}, host)
	if first.Objects[key].Bound != renamed.Objects[key].Bound {
		t.Error("pod was bound again after a rename and a comment")
	}
	edited := Next(renamed, Folder{Files: []File{read("b.yaml", "p 2")}}, host)
	got, want := edited.Objects[key].Bound, renamed.Objects[key].Bound
	if got == want || got.UID != want.UID || got.Name != "p-n1" || got.Spec.NodeName != "n1" {
		t.Errorf("pod after an edit = %s %s on %s, want another with the UID %s", got.UID, got.Name, got.Spec.NodeName, want.UID)
	}
	uids := map[string]types.UID{}
	for _, p := range first.Pods() {
		uids[p.Name] = p.Bound.UID
	}
	wantUIDs := map[string]types.UID{"p": spec.UID("default", "p", "n1"), "taken": "of-kubelet", "own": "u"}
	if !reflect.DeepEqual(uids, wantUIDs) {
		t.Errorf("UIDs = %v, want %v", uids, wantUIDs)
	}
}

func TestIgnored(t *testing.T) {
	for name, want := range map[string]bool{"a.yaml": false, "a": false, "README": false, "a.json": false, "x#y": false, "bak": false,
		".a.yaml": true, ".a.yaml.swp": true, "a.yaml~": true, "a.yaml.bak": true, "a.YAML.BAK": true, "#a.yaml#": true,
		"a.yaml.dpkg-new": true, "a.yaml.orig": true} {
		if got := Ignored(name); got != want {
			t.Errorf("Ignored(%q) = %t, want %t", name, got, want)
		}
	}
}
