package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"jettison/cgroup"
	"jettison/internal/kill"
	"jettison/internal/observe"
	"jettison/internal/sources"
	"jettison/stats"
)

func checkCommand(stdout io.Writer) *cobra.Command {
	var flags lookFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Print what this node can do, which sources answer, and every signal",
		Long: `check looks at the node once and prints four tables: what its kernel can do and what that is for; each source with
its answer, or why there is none and what to do about it; each rung of the kill ladder, tried on processes of its own in
scratch cgroups, where it may write; and each signal with its value, its threshold and its age, or why it
is absent.

Exit code 1: something that jettison run cannot work without is missing; it is the last line.`,
		Example: "  jettison check\n  jettison check --watch 10s",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.load(); err != nil {
				return err
			}
			return check(cmd.Context(), stdout, flags.options)
		},
	}
	flags.add(cmd)
	return cmd
}

// check prints the tables. The error is what run would fail with.
func check(ctx context.Context, stdout io.Writer, o observe.Options) error {
	s, err := sources.Open(o.Options)
	if err != nil {
		return err
	}
	defer s.Close()
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROBE\tANSWER\tDETAIL\tWHAT FOR")
	for _, f := range cgroup.NewFeatures(s.FS, o.ProcMount, sysMount(o)).Probe() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Name, f.Answer, orDash(f.Detail), purpose[f.Name])
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
	unknown := 0
	for _, p := range look.Summary.Pods {
		if p.Annotations["jettison/priority"] == "" || !slices.Contains(o.Config.AnnotationNamespaces, p.PodRef.Namespace) {
			unknown++
		}
	}
	fmt.Fprintf(stdout, "\npriority unknown for %d of %d pods (the CRI has none): of these, pods of %v are never evicted\n",
		unknown, len(look.Summary.Pods), o.Config.ProtectedNamespaces)
	return failed
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

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// sysMount is where the node's /sys is seen.
func sysMount(o observe.Options) string { return strings.TrimSuffix(o.HostRoot, "/") + "/sys" }

// printSources prints a line for each. The error is that of one that the agent cannot do without.
func printSources(w io.Writer, now time.Time, s *sources.Sources, look *observe.Look) error {
	line := func(name string, err error, detail string) {
		if err != nil {
			fmt.Fprintf(w, "%s\tfailed\t%s\n", name, oneLine(err.Error()))
			return
		}
		fmt.Fprintf(w, "%s\tok\t%s\n", name, detail)
	}
	controllers, err := s.FS.Controllers()
	line("cgroup v2 "+s.FS.Mount(), err, "controllers "+strings.Join(controllers, " "))
	where := "this process is in no pod"
	if s.Reader.Self() != "" {
		where = "this process is in /" + s.Reader.Self()
	}
	line("cgroups of pods and /proc", look.Err, fmt.Sprintf("%d pods; %s", len(look.Summary.Pods), where))
	r := look.Runtime
	line("runtime "+r.Endpoint, r.Err, fmt.Sprintf("%s %s, %d pods listed in %v, cgroup driver %s", r.Version.Name, r.Version.Version, len(r.Pods), r.Listed.Round(time.Millisecond), orUnknown(r.Driver)))
	for _, c := range r.Conditions {
		if !c.Status {
			line("runtime condition "+c.Type, fmt.Errorf("%s %s", c.Reason, c.Message), "")
		}
	}
	if look.HostErr != nil {
		line("host's root directory", look.HostErr, "")
	}
	for _, source := range look.Summary.Sources {
		detail := "not asked"
		if !source.Time.IsZero() {
			detail = fmt.Sprintf("answered %v ago", now.Sub(source.Time).Round(10*time.Millisecond))
		}
		line(source.Name, source.Err, detail)
	}
	if o := look.Summary.Observe(now, stats.SignalMemoryAvailable, stats.MemoryAvailableLower); !o.OK {
		return errors.New("memory.available: " + o.Reason)
	}
	if r.Err != nil {
		return r.Err
	}
	return nil
}

// ladderPurpose is what each rung is for.
var ladderPurpose = map[string]string{
	"cgroup.kill": "kills a pod by one write",
	"pidfd":       "kills it process by process, where that is missing or refused",
	"cpu":         "lets a pod that is starved of CPU die",
	"mrelease":    "frees its memory from threads of the agent's",
}

// printLadder runs the self-test, where this process may write to cgroups.
func printLadder(ctx context.Context, w io.Writer, s *sources.Sources) {
	fmt.Fprintln(w, "\nRUNG\tANSWER\tTIME\tDETAIL\tWHAT FOR")
	if s.FS.ReadOnly() || os.Geteuid() != 0 {
		fmt.Fprintln(w, "all\tnot tested\t-\tneeds root and a writable cgroup v2 hierarchy (docs/use/privileges.md)\t-")
		return
	}
	for _, r := range kill.SelfTest(ctx, s.FS, s.Reader.Self()).Rungs {
		took, detail := r.Took.Round(10*time.Microsecond).String(), "-"
		if r.Err != nil {
			took, detail = "-", oneLine(r.Err.Error())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Rung, r.Outcome, took, detail, ladderPurpose[r.Rung])
	}
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

// printSignals prints each signal that is an amount available.
func printSignals(w io.Writer, now time.Time, s *stats.Summary, o observe.Options) {
	for _, signal := range stats.Signals {
		threshold := thresholds(o, signal)
		v := s.Observe(now, signal, o.Config.MemoryAvailable)
		if !v.OK {
			fmt.Fprintf(w, "%s\tabsent\t-\t-\t%s\t-\t%s\n", signal, threshold, v.Reason)
			continue
		}
		note := ""
		if signal == stats.SignalMemoryAvailable {
			note = fmt.Sprintf("%s: workingSet %s, kernel %s", o.Config.MemoryAvailable, by(s, stats.MemoryAvailableWorkingSet), by(s, stats.MemoryAvailableKernel))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%v\t%s\n", signal, amount(signal, v.Available), amount(signal, v.Capacity), percent(v), threshold, now.Sub(v.Time).Round(time.Millisecond), note)
	}
}

// thresholds of a signal, hard and soft, as in "<100Mi, <1Gi for 30s".
func thresholds(o observe.Options, signal stats.Signal) string {
	var all []string
	for _, t := range o.Config.Thresholds {
		if t.Signal != signal {
			continue
		}
		text := strings.TrimPrefix(t.String(), string(signal))
		if !t.Hard() {
			text += " for " + t.Grace.String()
		}
		all = append(all, text)
	}
	return orDash(strings.Join(all, ", "))
}

func by(s *stats.Summary, how stats.MemoryAvailable) string {
	o := s.Node.Memory.Available(how)
	return size(stats.Opt[uint64]{V: o.Available, OK: o.OK})
}

// printPressure prints the share of time stalled, of each resource.
func printPressure(w io.Writer, now time.Time, p *stats.NodePressure, o observe.Options) {
	for _, r := range []struct {
		name string
		of   *stats.Pressure
	}{{"memory", &p.Memory}, {"io", &p.IO}, {"cpu", &p.CPU}} {
		for _, k := range []struct {
			kind  string
			share stats.StallShare
			avg   float64
			has   bool
		}{{"some", r.of.Some, r.of.Stats.V.Some.Avg10, r.of.Stats.V.HasSome}, {"full", r.of.Full, r.of.Stats.V.Full.Avg10, r.of.Stats.V.HasFull}} {
			signal := r.name + ".pressure." + k.kind
			if !r.of.Stats.OK || !k.has {
				fmt.Fprintf(w, "%s\tabsent\t-\t-\t-\t-\tthe kernel reports no pressure: boot it with psi=1\n", signal)
				continue
			}
			note := fmt.Sprintf("stalled: 1s %s, 10s %s, kernel's avg10 %.2f%%", share(k.share.Over1s, o.Watch, time.Second), share(k.share.Over10s, o.Watch, 10*time.Second), k.avg)
			fmt.Fprintf(w, "%s\t-\t-\t-\t%s\t%v\t%s\n", signal, thresholds(o, stats.Signal(signal)), now.Sub(r.of.Time).Round(time.Millisecond), note)
		}
	}
}

func share(v stats.Opt[float64], watched, window time.Duration) string {
	if !v.OK {
		if watched < window {
			return fmt.Sprintf("- (watched for %v)", watched)
		}
		return "-"
	}
	return fmt.Sprintf("%.2f%%", v.V*100)
}
