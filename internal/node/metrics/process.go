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

// goGauges are what the Go runtime tells without stopping anything (runtime/metrics), by the names
// that every Go program has.
var goGauges = []struct{ name, kind, meaning, sample string }{
	{"go_goroutines", "gauge", "Goroutines that exist.", "/sched/goroutines:goroutines"},
	{"go_memstats_alloc_bytes", "gauge", "Bytes of objects on the heap, unswept dead ones too.",
		"/memory/classes/heap/objects:bytes"},
	{"go_memstats_alloc_bytes_total", "counter", "Bytes that were allocated on the heap so far.",
		"/gc/heap/allocs:bytes"},
	{"go_memstats_heap_idle_bytes", "gauge", "Bytes of the heap that are free and not given back.",
		"/memory/classes/heap/free:bytes"},
	{"go_memstats_heap_released_bytes", "gauge", "Bytes of the heap that were given back.",
		"/memory/classes/heap/released:bytes"},
	{"go_memstats_stack_inuse_bytes", "gauge", "Bytes of stacks.",
		"/memory/classes/heap/stacks:bytes"},
	{"go_memstats_sys_bytes", "gauge", "Bytes that were asked of the system.",
		"/memory/classes/total:bytes"},
	{"go_gc_cycles_total", "counter", "Garbage collections of Go so far.",
		"/gc/cycles/total:gc-cycles"},
}

// process writes what Go and the kernel say of this process. Without /proc there is less.
func process(w *Writer, proc string) {
	w.Family("go_info", "gauge", "1, of the version of Go.")
	w.Sample("go_info", 1, time.Time{}, "version", runtime.Version())
	samples := make([]runtimemetrics.Sample, len(goGauges))
	for i := range goGauges {
		samples[i].Name = goGauges[i].sample
	}
	runtimemetrics.Read(samples)
	for i, g := range goGauges {
		if samples[i].Value.Kind() == runtimemetrics.KindUint64 {
			plain(w, g.name, g.kind, g.meaning, float64(samples[i].Value.Uint64()))
		}
	}
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	plain(w, "go_gc_pause_seconds_total", "counter",
		"Time in which garbage collections stopped everything.", gc.PauseTotal.Seconds())
	self := filepath.Join(proc, "self")
	status(w, self)
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		plain(w, "process_max_fds", "gauge", "File descriptors that it may have open.",
			float64(limit.Cur))
	}
	if all, err := os.ReadDir(filepath.Join(self, "fd")); err == nil {
		plain(w, "process_open_fds", "gauge", "File descriptors that it has open.", float64(len(all)))
	}
}

func plain(w *Writer, name, kind, meaning string, v float64) {
	w.Family(name, kind, meaning)
	w.Sample(name, v, time.Time{})
}

// userHZ is in what /proc counts clock ticks, on all architectures that Go has
// (Documentation/filesystems/proc.rst).
const userHZ = 100

// status writes what /proc/self/stat says (proc(5)): the fields after the command, which ends with
// the last parenthesis.
func status(w *Writer, self string) {
	text, err := os.ReadFile(filepath.Join(self, "stat"))
	if err != nil {
		return
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	number := func(field int) float64 { // by its number in proc(5)
		if at := field - 3; at < len(fields) {
			if v, err := strconv.ParseFloat(string(fields[at]), 64); err == nil {
				return v
			}
		}
		return math.NaN()
	}
	const utime, stime, threads, starttime, vsize, rss = 14, 15, 20, 22, 23, 24
	plain(w, "process_cpu_seconds_total", "counter", "CPU time of user and kernel.",
		(number(utime)+number(stime))/userHZ)
	plain(w, "go_threads", "gauge", "Threads of the process.", number(threads))
	plain(w, "process_virtual_memory_bytes", "gauge", "Address space.", number(vsize))
	plain(w, "process_resident_memory_bytes", "gauge",
		"Memory that is resident, that of files included.",
		number(rss)*float64(os.Getpagesize()))
	if boot, ok := bootTime(filepath.Dir(self)); ok {
		plain(w, "process_start_time_seconds", "gauge", "When it began, in seconds since 1970.", boot+
			number(starttime)/userHZ)
	}
}

// bootTime is btime of /proc/stat, in seconds since 1970.
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
