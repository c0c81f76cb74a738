// Package check says what a node can do, which sources answer, and how every signal stands, for a person who wants to know whether the
// agent will work there.
//
//	check.go       Run: the four tables, and what the kernel can do
//	answers.go     how each source answered
//	rungs.go       the rungs of the kill ladder, tried on processes of its own
//	priorities.go  how many pods' priorities are not known
//	values.go      each signal with its value, threshold and age
package check

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"jettison/cgroup"
	"jettison/internal/observe"
	"jettison/internal/show"
	"jettison/internal/sources"
	"jettison/stats"
)

// Run prints the tables. The error is what the agent would fail with.
func Run(ctx context.Context, stdout io.Writer, o observe.Options) error {
	s, err := sources.Open(o.Options)
	if err != nil {
		return err
	}
	defer s.Close()
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROBE\tANSWER\tDETAIL\tWHAT FOR")
	for _, f := range cgroup.NewFeatures(s.FS, o.ProcMount, o.SysMount()).Probe() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Name, f.Answer, show.OrDash(f.Detail), purpose[f.Name])
	}
	look := observe.Once(ctx, s, o)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := look.Time
	fmt.Fprintln(w, "\nSOURCE\tSTATE\tDETAIL")
	failed := printSources(w, now, s, look)
	printLadder(ctx, w, s)
	fmt.Fprintln(w, "\nSIGNAL\tAVAILABLE\tOF\tSHARE\tTHRESHOLD\tAGE\tREASON")
	printSignals(w, now, &look.Summary, o)
	printPressure(w, now, &look.Summary.Node.Pressure, o)
	if err := w.Flush(); err != nil {
		return err
	}
	if err := printUnknown(ctx, stdout, look, s.Reader.Self(), o); err != nil {
		return err
	}
	if n := statusRefused(look.Summary.Pods); n > 0 {
		fmt.Fprintf(stdout, "the runtime's status of %d of %d pods is larger than the agent takes: those of unknown request count as over it\n",
			n, len(look.Summary.Pods))
	}
	return failed
}

// statusRefused counts the pods whose status is too large.
func statusRefused(pods []stats.PodStats) (n int) {
	for i := range pods {
		if pods[i].StatusRefused {
			n++
		}
	}
	return n
}

// purpose is what each probe's answer matters for.
var purpose = map[string]string{
	"cgroup.kill":           "kills a pod at once, forks in flight included; without it only the runtime can",
	"memory.reclaim":        "can take cold memory from a pod instead of its life",
	"memory.peak":           "the highest use of a pod since it was made",
	"psi":                   "pressure signals; without: boot with psi=1",
	"psi windows below 2 s": "fast wakes by pressure; without: give the agent CAP_SYS_RESOURCE",
	"hugetlb controller":    "huge pages are no part of memory.available",
	"swap":                  "swap.available; whether reclaiming anonymous memory can pay",
	"memory.swap.current":   "swap used by each pod",
	"mglru":                 "what inactive_file means: with MGLRU, its older generations",
	"memory_recursiveprot":  "whether memory.min of a parent protects what is below it",
}
