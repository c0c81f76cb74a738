package read

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
	"jettison/stats"
)

// growing is a Reader beside whose looks cgroups are listed and opened, on a tree of files that can be held up, and can get new pods.
type growing struct {
	*Reader
	t   *testing.T
	dir string
}

const besideTest = 20 * time.Millisecond

func newGrowing(t *testing.T, names ...string) *growing {
	t.Helper()
	g := &growing{t: t, dir: t.TempDir()}
	write := func(name, text string) {
		path := filepath.Join(g.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup/cgroup.procs", "")
	write("cgroup/memory.stat", "anon 0\nfile 0\nshmem 0\ninactive_file 0\n")
	write("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 500000 kB\n")
	for _, name := range names {
		g.pod(name)
	}
	fs, err := cgroup.OpenTree(g.dir + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	proc, err := OpenProc(g.dir + "/proc")
	if err != nil {
		t.Fatal(err)
	}
	if g.Reader, err = NewReader(fs, proc, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close(); fs.Close(); proc.Close() })
	return g
}

// pod makes a BestEffort one.
func (g *growing) pod(name string) {
	g.t.Helper()
	dir := filepath.Join(g.dir, "cgroup/kubepods/besteffort/pod"+uid(name))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		g.t.Fatal(err)
	}
	for file, text := range map[string]string{
		"cgroup.events": "populated 1\nfrozen 0\n", "cgroup.procs": "", "cgroup.kill": "", "memory.current": "4096\n", "pids.current": "1\n",
		"memory.stat": "anon 4096\nfile 0\nshmem 0\ninactive_file 0\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			g.t.Fatal(err)
		}
	}
}

// uid is one that ends in a letter of its own.
func uid(name string) string { return "12345678-1234-1234-1234-12345678900" + name }

// look is a quick look: who was found, who was measured, and how long it took.
func (g *growing) look() (found, measured string, took time.Duration, err error) {
	g.t.Helper()
	var s stats.Summary
	start := time.Now()
	err = g.Quick(start, nil, &s)
	took = time.Since(start)
	for i := range s.Pods {
		p := &s.Pods[i]
		found += p.PodRef.UID[len(p.PodRef.UID)-1:]
		if p.Memory.UsageBytes.OK {
			measured += p.PodRef.UID[len(p.PodRef.UID)-1:]
		}
	}
	return found, measured, took, err
}

// sees fails the test unless a look soon finds, and measures, these.
func (g *growing) sees(wantFound, wantMeasured string) {
	g.t.Helper()
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		found, measured, _, err := g.look()
		if found == wantFound && measured == wantMeasured && err == nil {
			return
		}
		if time.Now().After(limit) {
			g.t.Fatalf("found %q, measured %q, %v; want %q and %q", found, measured, err, wantFound, wantMeasured)
		}
	}
}

// A directory whose lock is held keeps no look: the pods that were there before count, and that is said. The other roots are listed.
func TestAListThatIsHeldUp(t *testing.T) {
	g := newGrowing(t, "a", "b")
	g.Beside(besideTest)
	g.sees("ab", "ab")
	lock, entered := make(chan struct{}), make(chan struct{}, 100)
	at := slices.IndexFunc(g.pods.beside.listers, func(l *lister) bool { return l.path == "kubepods/besteffort" })
	g.pods.beside.listers[at].list = func(l *lister) error {
		entered <- struct{}{}
		<-lock
		return l.read()
	}
	g.pod("c")
	for range 3 {
		found, measured, took, err := g.look()
		if found != "ab" || measured != "ab" || err == nil || !strings.Contains(err.Error(), "list cgroup /kubepods/besteffort: no answer within") {
			t.Errorf("found %q, measured %q, %v", found, measured, err)
		}
		if took > 50*besideTest {
			t.Errorf("a look took %v", took)
		}
	}
	if len(entered) != 1 {
		t.Errorf("asked %d times while it was held up", len(entered))
	}
	close(lock)
	g.sees("abc", "abc")
}

// Nor does a cgroup that cannot be opened: the pod is there, and not measured.
func TestACgroupWhoseOpeningIsHeldUp(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside(besideTest)
	g.sees("a", "a")
	lock := make(chan struct{})
	open := g.pods.beside.opener.open
	g.pods.beside.opener.open = func(path string) (*cgroup.Group, error) { <-lock; return open(path) }
	g.pod("b")
	for range 3 {
		found, measured, took, err := g.look()
		if found != "ab" || measured != "a" || !errors.Is(err, errLateOpen) || took > 50*besideTest {
			t.Errorf("found %q, measured %q, %v, took %v", found, measured, err, took)
		}
	}
	if err := os.RemoveAll(filepath.Join(g.dir, "cgroup/kubepods/besteffort/pod"+uid("b"))); err != nil {
		t.Fatal(err)
	}
	if found, _, _, _ := g.look(); found != "a" {
		t.Errorf("found %q after its end", found)
	}
	g.pod("c")
	close(lock)
	g.sees("ac", "ac")
}

// What is made anew under the same name between two looks is opened anew.
func TestACgroupThatIsMadeAnewBesideALook(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside(besideTest)
	g.sees("a", "a")
	g.pods.here[uid("a")].close() // as a reader does that gets ENODEV
	g.sees("a", "a")
}

// Of a pod that the runtime has not told of, and whose processes have not answered, it is taken for granted that it is critical.
func TestAStrangerIsSparedUntilItsProcessesHaveAnswered(t *testing.T) {
	g := newGrowing(t, "a")
	g.Beside(besideTest)
	lock := make(chan struct{})
	asks := g.pods.beside.opener.asks
	g.pods.beside.opener.asks = func(path string) bool { <-lock; return asks(path) }
	critical := func() bool {
		var s stats.Summary
		if err := g.Quick(time.Now(), nil, &s); err != nil || len(s.Pods) != 1 {
			t.Fatalf("%d pods, %v", len(s.Pods), err)
		}
		return s.Pods[0].NodeCritical
	}
	for range 2 {
		if !critical() {
			t.Error("not spared while nothing is known")
		}
	}
	close(lock)
	for limit := time.Now().Add(10 * time.Second); critical(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("still spared when its processes have answered")
		}
	}
}

// A look beside which nothing is new allocates nothing, and a second handle of a pod's cgroup looks up no name.
func TestLooksBesideDoNotAllocate(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	g := newGrowing(t, "a", "b")
	g.Beside(time.Minute)
	g.sees("ab", "ab")
	var s stats.Summary
	if err := g.Quick(time.Now(), nil, &s); err != nil {
		t.Fatal(err)
	}
	pods := knownPods(s.Pods)
	if n := testing.AllocsPerRun(100, func() {
		if err := g.view(time.Now(), pods, &s, quick); err != nil || len(s.Pods) != 2 {
			t.Error(err, len(s.Pods))
		}
	}); n != 0 {
		t.Errorf("%v allocations a look", n)
	}
	if err := os.Rename(filepath.Join(g.dir, "cgroup/kubepods"), filepath.Join(g.dir, "away")); err != nil {
		t.Fatal(err)
	}
	var held cgroup.Group
	if n := testing.AllocsPerRun(10, func() {
		file, ok := g.Held(&s.Pods[0], &held)
		if !ok || file < 0 {
			t.Fatal("the cgroup is open, and is not held")
		}
		if err := held.WriteKill(file); err != nil {
			t.Error(err)
		}
		held.Close()
		unix.Close(file)
	}); n != 0 {
		t.Errorf("%v allocations to hold it", n)
	}
}
