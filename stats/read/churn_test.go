package read

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"jettison/cri"
	"jettison/stats"
	"jettison/stats/read/podindex"
)

// The churn: pods created per second, and the minimum on an emulated machine; pods alive at a
// time; the number of recurring UIDs; one pod in how many gets a process.
const (
	churnTime     = 30 * time.Second
	churnRate     = 200
	churnLeast    = 50
	churnAlive    = 20
	churnRecurs   = 8
	churnMoveIn   = 20
	churnKind     = 0xc0ffee // podUID
	churnRecurred = 0xcafe
)

// Pods created and removed all the time cause no error and leave no descriptor and no
// goroutine: a pod that vanishes during a look is a removed pod.
func TestLiveChurn(t *testing.T) {
	c := liveCollector(t)
	makePodParents(t)
	churn := newChurner(t)
	index := recurringPods()
	var s stats.Summary
	looks, seen := 0, map[string]bool{}
	look := func() {
		pods := index
		if looks%4 >= 2 { // the same pods, announced or not
			pods = nil
		}
		what, err := "MemoryView", error(nil)
		if looks%2 == 0 {
			err = c.MemoryView(time.Now(), pods, &s)
		} else {
			what, err = "Collect", c.Collect(time.Now(), pods, &s)
		}
		if err != nil {
			t.Errorf("look %s during churn failed: %v", what, err)
		}
		looks++
		for _, p := range s.Pods {
			if p.Memory.UsageBytes.OK {
				seen[p.PodRef.UID] = true
			}
		}
	}
	for range 4 { // opens the permanent descriptors
		look()
	}
	here := len(c.pods.byUID)
	goroutines, files := goleak.IgnoreCurrent(), openFiles(t)
	done := make(chan error)
	began := time.Now()
	go func() { done <- churn.run(began.Add(churnTime)) }()
	err, running := error(nil), true
	for running && !t.Failed() {
		look()
		select {
		case err = <-done:
			running = false
		default:
		}
	}
	if running {
		err = <-done
	}
	if err != nil {
		t.Fatal("creating and removing pods failed: ", err)
	}
	rate := float64(churn.made) / time.Since(began).Seconds()
	t.Logf("%d pods made and removed, %.0f a second, %d with a process moved in; %d looks measured %d of them", churn.made, rate, churn.moved, looks, len(seen))
	if rate < churnLeast {
		t.Errorf("%.0f pods a second, want %d", rate, churnLeast)
	}
	if len(seen) <= churnRecurs || !seen[podUID(churnRecurred, 0)] || churn.moved == 0 {
		t.Errorf("%d pods were measured, %d moved into: too little churn", len(seen), churn.moved)
	}
	for n := 0; n < 4 || looks%4 != 0; n++ { // the last one without the runtime's data
		look()
	}
	if now := openFiles(t); now != files {
		t.Errorf("%d descriptors before the churn, %d after", files, now)
	}
	if len(c.pods.byUID) != here || len(c.pods.runtimeOnly) != 0 {
		t.Errorf("%d pods are remembered, %d outside the roots; %d before the churn", len(c.pods.byUID), len(c.pods.runtimeOnly), here)
	}
	goleak.VerifyNone(t, goroutines)
}

// openFiles counts this process's descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// recurringPods returns the recurring pods as a runtime would report them.
func recurringPods() podindex.Index {
	var l cri.Listing
	for i := range churnRecurs {
		uid := podUID(churnRecurred, i)
		l.Sandboxes = append(l.Sandboxes, cri.PodSandbox{ID: uid, UID: uid, Ready: true, CgroupParent: "/" + podParents[i%len(podParents)] + "/pod" + uid})
	}
	return podindex.New(l)
}

// churner creates and removes pod cgroups.
type churner struct {
	alive    []churned // oldest first
	sleepers []int     // processes moved in and out
	home     string    // cgroup.procs of their first cgroup

	made, moved int
}

type churned struct {
	path    string
	sleeper int // process id; 0: none
}

func newChurner(t *testing.T) *churner {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	path, ok := strings.CutPrefix(strings.TrimSpace(string(own)), "0::/")
	if !ok {
		t.Fatalf("own cgroup of the test = %q", own)
	}
	c := &churner{home: groupDir(path) + "/cgroup.procs"}
	for range 4 {
		cmd := exec.Command("/bin/sh", "-c", "exec sleep 3600")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		c.sleepers = append(c.sleepers, cmd.Process.Pid)
	}
	return c
}

// run churns until an instant, and then removes the remaining pods.
func (c *churner) run(until time.Time) (err error) {
	began := time.Now()
	for time.Now().Before(until) && err == nil {
		for due := time.Since(began).Seconds() * churnRate; float64(c.made) < due && err == nil; {
			err = c.makeOne()
		}
		time.Sleep(time.Second / churnRate)
	}
	for len(c.alive) > 0 {
		err = errors.Join(err, c.removeOldest())
	}
	return err
}

func (c *churner) makeOne() error {
	uid, parent := podUID(churnKind, c.made), podParents[rand.N(len(podParents))]
	if i := c.made / 3 % churnRecurs; c.made%3 == 0 { // its previous pod is gone: churnAlive is below 3*churnRecurs
		uid, parent = podUID(churnRecurred, i), podParents[i%len(podParents)]
	}
	for len(c.alive) >= churnAlive {
		if err := c.removeOldest(); err != nil {
			return err
		}
	}
	pod := churned{path: groupDir(parent + "/pod" + uid)}
	if err := unix.Mkdir(pod.path, 0o755); err != nil {
		return &os.PathError{Op: "mkdir", Path: pod.path, Err: err}
	}
	if c.made%churnMoveIn == 0 && len(c.sleepers) > 0 {
		last := len(c.sleepers) - 1
		pod.sleeper, c.sleepers = c.sleepers[last], c.sleepers[:last]
		if err := moveTo(pod.path+"/cgroup.procs", pod.sleeper); err != nil {
			return err
		}
		c.moved++
	}
	c.alive = append(c.alive, pod)
	c.made++
	return nil
}

func (c *churner) removeOldest() error {
	pod := c.alive[0]
	c.alive = c.alive[1:]
	if pod.sleeper != 0 {
		if err := moveTo(c.home, pod.sleeper); err != nil {
			return err
		}
		c.sleepers = append(c.sleepers, pod.sleeper)
	}
	if err := unix.Rmdir(pod.path); err != nil {
		return &os.PathError{Op: "rmdir", Path: pod.path, Err: err}
	}
	return nil
}

// moveTo moves a process into a cgroup.
func moveTo(procs string, pid int) error { return os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0) }
