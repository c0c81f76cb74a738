package vm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"jettison/e2e/build"
)

// Usage has the resources that a process of the guest has used so far.
type Usage struct {
	CPU      time.Duration // of all its threads, including ended ones
	Switches map[int]int64 // context switches, voluntary or not, by id of its threads
	RSS      int64         // bytes: VmRSS
	RSSAnon  int64         // bytes
}

// Usage reads /proc/PID. It costs the guest one cat.
func (n *Node) Usage(ctx context.Context, pid int) (Usage, error) {
	text, err := n.Shell(ctx, fmt.Sprintf("cat /proc/%d/stat /proc/%[1]d/status /proc/%[1]d/task/*/status", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	u, err := parseUsage(text)
	if err != nil {
		err = fmt.Errorf("usage of process %d: %w", pid, err)
	}
	return u, err
}

// parseUsage reads a process's stat (proc_pid_stat(5): utime and stime, fields 14 and 15, in hundredths of a second), its status and
// its threads' (proc_pid_status(5)).
func parseUsage(text string) (u Usage, err error) {
	stat, statuses, _ := strings.Cut(text, "\n")
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]) // the name in parentheses may have any character; starts at the third field
	if len(fields) < 13 {
		return u, fmt.Errorf("stat has %d fields after the name", len(fields))
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return u, err
	}
	u.CPU = time.Duration(user+system) * 10 * time.Millisecond
	u.Switches = map[int]int64{}
	seen, thread := 0, 0 // seen: statuses so far; the first is the process's
	for line := range strings.Lines(statuses) {
		name, rest, _ := strings.Cut(line, ":")
		value, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			continue // not a number
		}
		switch {
		case name == "Pid":
			seen, thread = seen+1, int(value)
		case seen == 1 && name == "VmRSS":
			u.RSS = value << 10
		case seen == 1 && name == "RssAnon":
			u.RSSAnon = value << 10
		case seen > 1 && strings.HasSuffix(name, "voluntary_ctxt_switches"): // and nonvoluntary
			u.Switches[thread] += value
		}
	}
	if len(u.Switches) == 0 || u.RSS == 0 {
		return u, errors.New("status has no memory or no thread fields")
	}
	return u, nil
}

// SwitchesSince returns the context switches of the process's threads since an earlier reading. It
// does not count threads that ended in between.
func (u Usage) SwitchesSince(before Usage) (sum int64) {
	for thread, count := range u.Switches {
		sum += count - before.Switches[thread]
	}
	return sum
}

// Syscalls counts the system calls of the whole guest for a window, by thread. The kernel counts
// them in a histogram of the tracepoint raw_syscalls:sys_enter (Documentation/trace/histogram.rst).
// That slows each call, so nothing else should be measured in the same window.
func (n *Node) Syscalls(ctx context.Context, window time.Duration) (map[int]int64, error) {
	const event = "/sys/kernel/tracing/events/raw_syscalls/sys_enter"
	line := fmt.Sprintf("test -d %[1]s || mount -t tracefs tracefs /sys/kernel/tracing; cd %[1]s && echo hist:keys=common_pid:size=8192 > trigger && sleep %.0[2]f && cat hist; "+
		"code=$?; echo '!hist:keys=common_pid' > trigger; exit $code", event, window.Seconds())
	ctx, cancel := context.WithTimeout(ctx, window+callDeadline)
	defer cancel()
	text, err := n.Shell(ctx, line)
	if err != nil {
		return nil, fmt.Errorf("count system calls: %w", err)
	}
	counts, err := parseHistogram(text)
	if err != nil {
		err = fmt.Errorf("count system calls: %w", err)
	}
	return counts, err
}

var histogramLine = regexp.MustCompile(`(?m)^\{ common_pid:\s*(\d+) \} hitcount:\s*(\d+)\s*$`)

// parseHistogram reads lines such as "{ common_pid:       1234 } hitcount:         55". Calls that
// the kernel could not count are an error.
func parseHistogram(text string) (map[int]int64, error) {
	counts := map[int]int64{}
	for _, m := range histogramLine.FindAllStringSubmatch(text, -1) {
		thread, err1 := strconv.Atoi(m[1])
		count, err2 := strconv.ParseInt(m[2], 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		counts[thread] += count
	}
	if len(counts) == 0 || !strings.Contains(text, "\n    Dropped: 0\n") {
		return nil, fmt.Errorf("no whole histogram: %s", build.Tail(text, 400))
	}
	return counts, nil
}
