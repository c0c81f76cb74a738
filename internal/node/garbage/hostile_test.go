package garbage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"jettison/reclaim"
)

// Entries of the log directory that are not exactly the directory of a pod stay. Removing a pod's
// directory removes nothing outside it.
func TestAHostileLogDirectory(t *testing.T) {
	n := newNode(t)
	n.open(func(o *Options) { o.PodGoneAfter = 0 })
	precious := n.file("etc/passwd")
	kept := []string{
		"notes.txt", "lost+found/x", "789/x", "default_a_b_" + uidA + "/x", "default_a_" + uidA + "x/x", "default_.._" + uidA + "/x", "..._x_" + uidA + "/x",
		"Default_a_" + uidA + "/x", "default_a_" + strings.ToUpper(uidA) + "/x", "default_a_" + uidA + "\n/x", "journal_" + uidA + "/x", "default_file_" + uidA,
	}
	for _, name := range kept {
		n.file("log/pods/" + name)
	}
	n.link("/etc", "log/pods/default_link_"+uidA)
	n.link("../../etc", "log/pods/default_up_"+uidA)
	gone := filepath.Dir(filepath.Dir(n.file("log/pods/default_gone_" + uidA + "/main/0.log")))
	n.link("/etc", "log/pods/default_gone_"+uidA+"/etc")
	n.link("../../../etc/passwd", "log/pods/default_gone_"+uidA+"/main/1.log")
	r := n.pass(Containers, reclaim.Periodic)
	if r.Count(Removed) != 1 || r.Count(Failed) > 0 || exists(gone) {
		t.Errorf("steps = %+v, want one removal without failures", r.Done)
	}
	for _, name := range kept {
		if !exists(filepath.Join(n.root, "log/pods", name)) {
			t.Errorf("log directory entry %q was removed, want it kept", name)
		}
	}
	for _, name := range []string{"default_link_" + uidA, "default_up_" + uidA} {
		if !exists(filepath.Join(n.root, "log/pods", name)) {
			t.Errorf("log directory entry %s was removed, want it kept", name)
		}
	}
	if text, err := os.ReadFile(precious); err != nil || len(text) != 5000 {
		t.Errorf("read of /etc/passwd = %v, want 5000 bytes unchanged", err)
	}
	if len(r.Plan.Left) != len(kept)+2 {
		t.Errorf("%d entries are reported, want %d: %v", len(r.Plan.Left), len(kept)+2, r.Plan.Left)
	}
	for _, l := range r.Plan.Left {
		if strings.Contains(l.String(), "\n") {
			t.Errorf("a name makes a line of its own: %q", l.String())
		}
	}
}

// A directory that is replaced by a link between plan and step is not followed.
func TestALogDirectoryThatBecomesALink(t *testing.T) {
	n := newNode(t)
	n.open(func(o *Options) { o.PodGoneAfter = 0 })
	precious := n.file("etc/passwd")
	dir := filepath.Dir(filepath.Dir(n.file("log/pods/default_a_" + uidA + "/main/0.log")))
	calls := 0
	n.r.Answer["ListPodSandbox"] = func(m any) any {
		if calls++; calls == 2 { // the call of the step
			if err := os.Rename(dir, dir+".old"); err != nil {
				t.Error(err)
			}
			if err := os.Symlink("/etc", dir); err != nil {
				t.Error(err)
			}
		}
		return m
	}
	r := n.pass(Containers, reclaim.Periodic)
	if r.Count(Failed) != 1 || !exists(precious) || !exists(dir) {
		t.Errorf("steps = %+v, want one failure and nothing removed", r.Done)
	}
}

// Of the links in the directory of container logs, a pass removes those with the name of a
// container's link that dangle, point below the log directory, and belong to a container that is
// known not to run.
func TestHostileLinks(t *testing.T) {
	n := newNode(t)
	n.known.Store(&Known{Pods: map[string]reclaim.Phase{uidA: reclaim.Active}, Synced: true})
	id := func(c string) string { return strings.Repeat(c, 64) }
	nowhere := "/log/pods/default_a_" + uidA + "/main/9.log"
	n.sandbox("s", uidA, true, time.Hour)
	n.container(id("1"), "s", uidA, running, time.Hour, "")
	n.container(id("2"), "s", uidA, exited, time.Hour, "")
	n.link(nowhere, "var/log/containers/a_default_main-"+id("1")+".log") // its log is being rotated
	n.link(nowhere, "var/log/containers/a_default_main-"+id("2")+".log")
	n.link(nowhere, "var/log/containers/a_default_main-"+id("3")+".log")
	n.link(nowhere, "var/log/containers/a_default_main-4.log")
	n.link(nowhere, "var/log/containers/mine.log")
	n.link("/etc/none", "var/log/containers/a_default_main-"+id("5")+".log")
	n.link("/log/pods/../../etc/none", "var/log/containers/a_default_main-"+id("6")+".log")
	n.file("var/log/containers/a_default_main-" + id("7") + ".log")
	r := n.pass(Containers, reclaim.Periodic)
	var gone []string
	for _, d := range r.Done {
		if d.Outcome == Removed {
			gone = append(gone, d.ID[len("a_default_main-"):][:1])
		}
	}
	if !slices.Equal(gone, []string{"2", "3"}) || r.Count(Failed) > 0 {
		t.Errorf("removed links = %v, steps %+v, want [2 3] without failures", gone, r.Done)
	}
	if entries, err := os.ReadDir(filepath.Join(n.root, "var/log/containers")); err != nil || len(entries) != 6 {
		t.Errorf("links left = %v, %v, want 6", entries, err)
	}
	if len(r.Plan.Left) != 2 {
		t.Errorf("leftovers of unknown pods = %v, want 2", r.Plan.Left)
	}
}
