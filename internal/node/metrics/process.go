package metrics

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// goGauges are the values that the Go runtime provides without stopping the program
// (runtime/metrics), under the usual names of Go programs.
var goGauges = []struct{ name, kind, meaning, sample string }{
	{"go_goroutines", "gauge", "Number of goroutines.", "/sched/goroutines:goroutines"},
	{"go_memstats_alloc_bytes", "gauge", "Bytes of heap objects, including dead objects that are not swept yet.",
		"/memory/classes/heap/objects:bytes"},
	{"go_memstats_alloc_bytes_total", "counter", "Bytes allocated on the heap since the start.",
		"/gc/heap/allocs:bytes"},
	{"go_memstats_heap_idle_bytes", "gauge", "Free bytes of the heap that are not returned to the system.",
		"/memory/classes/heap/free:bytes"},
	{"go_memstats_heap_released_bytes", "gauge", "Bytes of the heap that were returned to the system.",
		"/memory/classes/heap/released:bytes"},
	{"go_memstats_stack_inuse_bytes", "gauge", "Bytes of goroutine stacks.",
		"/memory/classes/heap/stacks:bytes"},
	{"go_memstats_sys_bytes", "gauge", "Bytes of memory obtained from the system.",
		"/memory/classes/total:bytes"},
	{"go_gc_cycles_total", "counter", "Go garbage collection cycles since the start.",
		"/gc/cycles/total:gc-cycles"},
}

// Process writes metrics of this process from Go and the kernel. proc is the mount of /proc; without
// it some are missing.
func Process(w *Writer, proc string) {
	w.Family("go_info", "gauge", "Always 1. The label is the Go version.")
	w.Sample("go_info", 1, time.Time{}, "version", runtime.Version())
	samples := make([]runtimemetrics.Sample, len(goGauges))
	for i := range goGauges {
		samples[i].Name = goGauges[i].sample
	}
	runtimemetrics.Read(samples)
	for i, g := range goGauges {
		if samples[i].Value.Kind() == runtimemetrics.KindUint64 {
			singleSample(w, g.name, g.kind, g.meaning, float64(samples[i].Value.Uint64()))
		}
	}
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	singleSample(w, "go_gc_pause_seconds_total", "counter",
		"Time in which Go garbage collections stopped all goroutines.", gc.PauseTotal.Seconds())
	self := filepath.Join(proc, "self")
	status(w, self)
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		singleSample(w, "process_max_fds", "gauge", "Maximum number of open file descriptors.",
			float64(limit.Cur))
	}
	if all, err := os.ReadDir(filepath.Join(self, "fd")); err == nil {
		singleSample(w, "process_open_fds", "gauge", "Number of open file descriptors.", float64(len(all)))
	}
}

func singleSample(w *Writer, name, kind, meaning string, v float64) {
	w.Family(name, kind, meaning)
	w.Sample(name, v, time.Time{})
}

// userHZ is the number of clock ticks per second in /proc, on all architectures of Go
// (Documentation/filesystems/proc.rst).
const userHZ = 100

// status writes values of /proc/self/stat (proc(5)): the fields after the command, which ends with
// the last parenthesis.
func status(w *Writer, self string) {
	text, err := os.ReadFile(filepath.Join(self, "stat"))
	if err != nil {
		return
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	number := func(field int) float64 { // number as in proc(5)
		if at := field - 3; at < len(fields) {
			if v, err := strconv.ParseFloat(string(fields[at]), 64); err == nil {
				return v
			}
		}
		return math.NaN()
	}
	const utime, stime, threads, starttime, vsize, rss = 14, 15, 20, 22, 23, 24
	singleSample(w, "process_cpu_seconds_total", "counter", "User and system CPU time.",
		(number(utime)+number(stime))/userHZ)
	singleSample(w, "go_threads", "gauge", "Number of threads.", number(threads))
	singleSample(w, "process_virtual_memory_bytes", "gauge", "Virtual memory size.", number(vsize))
	singleSample(w, "process_resident_memory_bytes", "gauge",
		"Resident memory size, including mapped files.",
		number(rss)*float64(os.Getpagesize()))
	if boot, ok := bootTime(filepath.Dir(self)); ok {
		singleSample(w, "process_start_time_seconds", "gauge", "Start time of the process, in seconds since 1970.", boot+
			number(starttime)/userHZ)
	}
}

// bootTime returns btime of /proc/stat, in seconds since 1970.
func bootTime(proc string) (float64, bool) {
	text, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if rest, is := bytes.CutPrefix(line, []byte("btime ")); is {
			v, err := strconv.ParseFloat(string(bytes.TrimSpace(rest)), 64)
			return v, err == nil
		}
	}
	return 0, false
}
