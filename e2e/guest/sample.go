package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"jettison/e2e/guestapi"
)

// memoryReader reads the node's memory on kept file descriptors into one buffer.
type memoryReader struct {
	meminfo, rootStat, vmstat, zoneinfo int
	buf                                 [64 << 10]byte
}

func newMemoryReader() (*memoryReader, error) {
	m := &memoryReader{}
	for path, fd := range map[string]*int{"/proc/meminfo": &m.meminfo, "/sys/fs/cgroup/memory.stat": &m.rootStat, "/proc/vmstat": &m.vmstat, "/proc/zoneinfo": &m.zoneinfo} {
		var err error
		if *fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
	}
	return m, nil
}

func (m *memoryReader) read() (out guestapi.Memory, err error) {
	out.MonotonicNS = monotonic()
	for _, f := range []struct {
		fd     int
		scale  int64
		fields map[string]*int64
	}{
		{m.meminfo, 1024, map[string]*int64{"MemTotal:": &out.Total, "MemAvailable:": &out.MemAvailable}},
		{m.vmstat, 1, map[string]*int64{"oom_kill": &out.OOMKills}},
	} {
		if err := m.fields(f.fd, f.scale, f.fields); err != nil {
			return out, err
		}
	}
	var anon, file, inactive int64
	if err := m.fields(m.rootStat, 1, map[string]*int64{"anon": &anon, "file": &file, "inactive_file": &inactive}); err != nil {
		return out, err
	}
	out.WorkingSet = anon + file - inactive
	if out.MemAvailable < low {
		out.PerCPUFree, err = m.perCPUFree()
	}
	return out, err
}

// low is below what MemAvailable must be for the per-CPU lists to be worth a look.
const low = 256 << 20

// perCPUFree sums the "count: PAGES" lines of /proc/zoneinfo.
func (m *memoryReader) perCPUFree() (int64, error) {
	n, err := unix.Pread(m.zoneinfo, m.buf[:], 0)
	if err != nil {
		return 0, err
	}
	var pages int64
	for line := range bytes.Lines(m.buf[:n]) {
		if number, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("count:")); ok {
			v, err := strconv.ParseInt(string(bytes.TrimSpace(number)), 10, 64)
			if err != nil {
				return 0, err
			}
			pages += v
		}
	}
	return pages * int64(os.Getpagesize()), nil
}

// fields reads "name value [kB]" lines; a name that is not there is an error.
func (m *memoryReader) fields(fd int, scale int64, want map[string]*int64) error {
	n, err := unix.Pread(fd, m.buf[:], 0)
	if err != nil {
		return err
	}
	found := 0
	for line := range bytes.Lines(m.buf[:n]) {
		words := bytes.Fields(line)
		if len(words) < 2 {
			continue
		}
		if dst := want[string(words[0])]; dst != nil {
			v, err := strconv.ParseInt(string(words[1]), 10, 64)
			if err != nil {
				return err
			}
			*dst = v * scale
			found++
		}
	}
	if found != len(want) {
		return fmt.Errorf("%d of %d fields found", found, len(want))
	}
	return nil
}

func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

func (s *service) memory(w http.ResponseWriter, _ *http.Request) {
	m, err := newMemoryReader()
	if err != nil {
		reply(w, nil, err)
		return
	}
	defer func() { unix.Close(m.meminfo); unix.Close(m.rootStat); unix.Close(m.vmstat); unix.Close(m.zoneinfo) }()
	out, err := m.read()
	reply(w, out, err)
}

// sampler watches memory and one cgroup from a locked, real-time thread until it is stopped.
type sampler struct {
	mu   sync.Mutex
	stop chan struct{} // nil: not running
	done chan guestapi.Sample
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
	if s.sampler.stop != nil {
		reply(w, nil, errors.New("a sampler is running already"))
		return
	}
	mem, err := newMemoryReader()
	if err != nil {
		reply(w, nil, err)
		return
	}
	s.sampler.stop, s.sampler.done = make(chan struct{}), make(chan guestapi.Sample, 1)
	go watch(mem, req, s.sampler.stop, s.sampler.done)
	reply(w, struct{}{}, nil)
}

func (s *service) stopSample(w http.ResponseWriter, _ *http.Request) {
	s.sampler.mu.Lock()
	defer s.sampler.mu.Unlock()
	if s.sampler.stop == nil {
		reply(w, nil, errors.New("no sampler is running"))
		return
	}
	close(s.sampler.stop)
	sample := <-s.sampler.done
	s.sampler.stop = nil
	reply(w, sample, nil)
}

func watch(mem *memoryReader, req guestapi.SampleRequest, stop <-chan struct{}, done chan<- guestapi.Sample) {
	runtime.LockOSThread() // never unlocked: the thread dies with its priority
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 50}, 0)
	out := guestapi.Sample{Lowest: 1 << 62}
	events := "/sys/fs/cgroup/" + req.Cgroup + "/cgroup.events"
	var last int64
	for tick := time.NewTicker(max(req.Every, time.Millisecond)); ; {
		select {
		case <-stop:
			tick.Stop()
			done <- out
			return
		case <-tick.C:
		}
		m, err := mem.read()
		if err != nil {
			continue
		}
		if last != 0 {
			out.MaxGap = max(out.MaxGap, m.MonotonicNS-last)
		}
		last = m.MonotonicNS
		out.Samples++
		out.Lowest = min(out.Lowest, m.Available())
		if out.Crossed == 0 && m.Available() < req.Threshold {
			out.Crossed = m.MonotonicNS
		}
		if out.Crossed != 0 && out.Empty == 0 && !populated(events) {
			out.Empty = monotonic()
		}
		if out.Empty != 0 && out.Back == 0 && m.Available() >= req.Threshold {
			out.Back = m.MonotonicNS
		}
	}
}

// populated is false for a cgroup without processes and for one that is gone.
func populated(events string) bool {
	b, err := os.ReadFile(events)
	return err == nil && bytes.Contains(b, []byte("populated 1"))
}
