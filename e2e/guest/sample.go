package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"jettison/e2e/guestapi"
)

func (s *service) memory(w http.ResponseWriter, _ *http.Request) {
	m, err := openMemory("/proc", "/sys/fs/cgroup")
	if err != nil {
		reply(w, nil, err)
		return
	}
	defer m.close()
	out, err := m.all()
	reply(w, out, err)
}

// sampler is the sampling process. It is a separate process with one active thread, a real-time
// one: in this process a thread of ordinary priority could delay it, because Go's scheduler moves
// work between threads.
type sampler struct {
	mu    sync.Mutex
	child *exec.Cmd // nil: not running
	stdin io.Closer // closed to stop it
	out   *bufio.Reader
}

func newSampler() *sampler { return &sampler{} }

func (s *service) startSample(w http.ResponseWriter, r *http.Request) {
	var req guestapi.SampleRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.sampler.mu.Lock()
	defer s.sampler.mu.Unlock()
	if s.sampler.child != nil {
		reply(w, nil, errors.New("start the sampler: one is running already"))
		return
	}
	reply(w, struct{}{}, s.sampler.start(req))
}

// start returns when the sampler has taken its first sample.
func (s *sampler) start(req guestapi.SampleRequest) error {
	text, err := json.Marshal(req)
	if err != nil {
		return err
	}
	child := exec.Command("/proc/self/exe", "sample", string(text))
	// One P, and no garbage collection or preemption that stops its thread.
	child.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	var stderr bytes.Buffer
	child.Stderr = &stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return fmt.Errorf("start the sampler: %w", err)
	}
	out := bufio.NewReader(stdout)
	if line, err := out.ReadString('\n'); err != nil || line != samplerReady {
		_ = stdin.Close()
		_ = child.Wait()
		return fmt.Errorf("start the sampler: it printed %q (%v): %s", line, err, strings.TrimSpace(stderr.String()))
	}
	s.child, s.stdin, s.out = child, stdin, out
	return nil
}

func (s *service) stopSample(w http.ResponseWriter, _ *http.Request) {
	s.sampler.mu.Lock()
	defer s.sampler.mu.Unlock()
	if s.sampler.child == nil {
		reply(w, nil, errors.New("stop the sampler: no sampler is running"))
		return
	}
	var sample guestapi.Sample
	err := s.sampler.stdin.Close()
	if err == nil {
		err = json.NewDecoder(s.sampler.out).Decode(&sample)
	}
	err = errors.Join(err, s.sampler.child.Wait())
	s.sampler.child = nil
	reply(w, sample, err)
}

// samplerReady is the sampler's first line of output, printed after its first sample.
const samplerReady = "sampling\n"

// sample runs the sampler's process. Its argument is the request, the end of its stdin stops it,
// and the Sample goes to stdout.
func sample(request string) error {
	var req guestapi.SampleRequest
	if err := json.Unmarshal([]byte(request), &req); err != nil {
		return err
	}
	p, err := newProbe(req, "/proc", "/sys/fs/cgroup")
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(0, true); err != nil {
		return err
	}
	// The first samples bring all needed memory in before any counts. Locking everything that is
	// mapped but was never touched would cost 64 MiB, Go's arena.
	refused := prioritise()
	for range 16 {
		if _, err := p.step(monotonic()); err != nil {
			return err
		}
	}
	p.reset()
	if _, err := os.Stdout.WriteString(samplerReady); err != nil {
		return err
	}
	out, err := p.watch()
	if err != nil {
		return err
	}
	out.Refused = refused
	out.WallOffset = wallOffset()
	return json.NewEncoder(os.Stdout).Encode(out)
}

// samplePriority is above the agent's watcher, which has the lowest real-time priority, and below
// the kernel's own threads.
const samplePriority = 50

// prioritise makes this thread a real-time one and locks the process's memory. It returns the
// refused calls.
func prioritise() (refused []string) {
	if err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT); err != nil {
		refused = append(refused, "mlockall: "+err.Error())
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: samplePriority}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		refused = append(refused, "SCHED_FIFO: "+err.Error()+" (needs CAP_SYS_NICE, and a real-time budget of its cgroup where the kernel has RT_GROUP_SCHED)")
	}
	return refused
}

// wallOffset returns CLOCK_REALTIME - CLOCK_MONOTONIC in nanoseconds.
func wallOffset() int64 {
	var wall unix.Timespec
	before := monotonic()
	_ = unix.ClockGettime(unix.CLOCK_REALTIME, &wall)
	return wall.Nano() - (before+monotonic())/2
}
