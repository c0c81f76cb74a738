package admission

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"jettison/cri"
	"jettison/eviction"
)

// A hand-made sandbox without a UID has the class of its cgroup and the requests it was made with.
func TestSandboxWithoutUID(t *testing.T) {
	s := &script{t: t}
	for _, c := range []struct{ parent, under, want string }{
		{"/kubepods/podx", "", "OutOfcpu"},
		{"/kubepods/besteffort/podx", "MemoryPressure", "Evicted"},
		{"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podx.slice", "MemoryPressure", "Evicted"},
		{"/kubepods/podx", "DiskPressure", "Evicted"},
		{"", "DiskPressure", "Evicted"},
		{"", "", "OutOfcpu"},
	} {
		if _, err := s.run(&datadriven.TestData{Cmd: "node", Input: "cpu 1\nmemory 1Gi\npods 10\n"}); err != nil {
			t.Fatal(err)
		}
		if c.under != "" {
			s.conditions = []eviction.Condition{eviction.Condition(c.under)}
		}
		s.publish()
		shares, memory := uint64(100*1024), uint64(100<<30)
		p := &cri.PodSandbox{ID: "s", Namespace: "default", Name: "x", CgroupParent: c.parent, CPUShares: &shares, MemoryLimit: &memory}
		if got := s.a.Reject(s.now, p, ""); !strings.Contains(got, ": "+c.want+": ") {
			t.Errorf("%s under %q: %q, want %s", c.parent, c.under, got, c.want)
		}
		if n, err := s.a.State(s.now); err != nil || len(n.Reservations) > 0 {
			t.Errorf("promises = %+v, %v, want none for a pod without a UID", n.Reservations, err)
		}
	}
}

// However many forbidden sysctls a pod sets, and however long their names are, its refusal is one
// short log line.
func TestManySysctlsAreOneLine(t *testing.T) {
	s := &script{t: t}
	names := `{"name":"` + strings.Repeat("x", 900<<10) + `","value":"1"}` + strings.Repeat(`,{"name":"a","value":"1"}`, 99)
	for _, d := range []datadriven.TestData{
		{Cmd: "node", Input: "cpu 1\npods 10\n"},
		{Cmd: "objects", Input: `{"metadata":{"uid":"a","namespace":"default","name":"a"},"spec":{"securityContext":{"sysctls":[` + names +
			`]},"containers":[{"name":"c"}]}}`},
		{Cmd: "refuse", Input: "default/a bu"},
	} {
		if _, err := s.run(&d); err != nil {
			t.Fatal(err)
		}
	}
	r := <-s.part.Refusals()
	if len(r.Failures) != 10 {
		t.Errorf("%d failures in the refusal, want 10", len(r.Failures))
	}
	s.part.OnRefusal(r)
	if text := s.log.String(); len(text) > 1000 || !strings.Contains(text, "reasons=[SysctlForbidden]") {
		t.Errorf("log line of %d bytes, want at most 1000 with one reason: %.1000s", len(text), text)
	}
}
