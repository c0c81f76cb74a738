package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"
)

// tracing is the kernel's tracing folder. The trace of signals slows nothing measured here: a few
// lines per kill.
const tracing = "/sys/kernel/tracing"

// traceSignals makes the kernel trace each SIGKILL and SIGTERM, by CLOCK_MONOTONIC
// (include/trace/events/signal.h): a witness that is independent of all killers.
func (r *reactor) traceSignals() {
	r.t.Helper()
	r.shell("grep -q ' " + tracing + " ' /proc/mounts || mount -t tracefs tracefs " + tracing + " && cd " + tracing +
		" && echo mono > trace_clock && echo 'sig == 9 || sig == 15' > events/signal/signal_generate/filter" +
		" && echo 1 > events/signal/signal_generate/enable && echo 1 > tracing_on")
}

// sentSignal is a signal sent through the kernel.
type sentSignal struct {
	at   int64  // CLOCK_MONOTONIC, ns; the kernel gives microseconds
	from string // comm of the sender
	sig  int
	comm string // of the target
	pid  int    // of the target; of each thread if its pid namespace ends
}

// signalLine matches a line of "trace": TASK-PID [CPU] FLAGS SECONDS.MICROS: signal_generate: sig=9
// errno=0 code=0 comm=x pid=1 grp=1 res=0.
var signalLine = regexp.MustCompile(`(?m)^ *(.*)-\d+ +\[\d+\] .*? (\d+)\.(\d{6}): signal_generate: sig=(\d+) .*?comm=(.*) pid=(\d+) `)

// signals returns the signals recorded after the trace was emptied, oldest first.
func (r *reactor) signals() []sentSignal {
	r.t.Helper()
	text, err := r.ReadFile(r.ctx, tracing+"/trace", 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return parseSignals(string(text))
}

func parseSignals(trace string) (out []sentSignal) {
	for _, m := range signalLine.FindAllStringSubmatch(trace, -1) {
		var n [4]int64
		for i, word := range []string{m[2], m[3], m[4], m[6]} {
			n[i], _ = strconv.ParseInt(word, 10, 64) // digits, by the expression
		}
		out = append(out, sentSignal{at: n[0]*1e9 + n[1]*1e3, from: m[1], sig: int(n[2]), comm: m[5], pid: int(n[3])})
	}
	return out
}

// isAvailable is a check for Eventually.
func (n *node) isAvailable(available int64, signal string) func(context.Context) error {
	return func(ctx context.Context) error {
		m, err := n.Memory(ctx)
		if err == nil && m.By(signal) < available {
			err = fmt.Errorf("%d MiB of memory available, want %d", m.By(signal)/mib, available/mib)
		}
		return err
	}
}

func TestParseSignals(t *testing.T) {
	trace := `# tracer: nop
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
        jettison-812     [000] d..3.    63.120450: signal_generate: sig=9 errno=0 code=0 comm=workload pid=1007 grp=1 res=0
 a b [x]-9     [000] dN.4.   163.000001: signal_generate: sig=15 errno=0 code=0 comm=a pid=3 b pid=1 grp=0 res=1
`
	want := "[{63120450000 jettison 9 workload 1007} {163000001000 a b [x] 15 a pid=3 b 1}]"
	if got := fmt.Sprint(parseSignals(trace)); got != want {
		t.Errorf("parsed signals = %s, want %s", got, want)
	}
}
