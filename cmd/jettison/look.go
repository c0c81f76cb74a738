package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/config"
	"jettison/internal/observe"
	"jettison/internal/sources"
	"jettison/internal/summaryv1"
	"jettison/stats"
)

// lookFlags are those of the commands that look at a node once.
type lookFlags struct {
	path    string
	options observe.Options
}

func (l *lookFlags) add(cmd *cobra.Command) {
	l.addPlaces(cmd)
	f := cmd.Flags()
	f.DurationVar(&l.options.Watch, "watch", time.Second, "how long to watch before the figures that are rates")
	f.DurationVar(&l.options.Wait, "wait", 5*time.Second, "longest wait for the runtime, file systems and directories")
}

// addPlaces adds the flags that say where things are.
func (l *lookFlags) addPlaces(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&l.path, "config", "", "configuration file (default "+config.DefaultPath+" if it is there)")
	f.StringVar(&l.options.CgroupMount, "cgroup-mount", "/sys/fs/cgroup", "where the node's cgroup v2 hierarchy is mounted")
	f.StringVar(&l.options.ProcMount, "proc-mount", "/proc", "where the node's /proc is mounted")
	f.StringVar(&l.options.HostRoot, "host-root", defaultHostRoot(), "where the node's root directory is seen")
}

// defaultHostRoot is the root of the node's first process where this one sees it and has another root of its own, as in a
// container with the host's process ids.
func defaultHostRoot() string {
	const host = "/proc/1/root"
	own, err1 := os.Stat("/")
	first, err2 := os.Stat(host + "/")
	if err1 == nil && err2 == nil && !os.SameFile(own, first) {
		return host
	}
	return "/"
}

// load reads the configuration and checks the flags.
func (l *lookFlags) load() error {
	for _, f := range []struct {
		name  string
		value time.Duration
		most  time.Duration
	}{{"watch", l.options.Watch, 10 * time.Minute}, {"wait", l.options.Wait, 10 * time.Minute}} {
		if f.value <= 0 || f.value > f.most {
			return usageError{fmt.Errorf("--%s %v: want more than 0 and at most %v", f.name, f.value, f.most)}
		}
	}
	var err error
	if l.options.Config, err = config.Load(l.path); err != nil {
		return usageError{err}
	}
	return nil
}

func statsCommand(stdout, stderr io.Writer) *cobra.Command {
	var flags lookFlags
	var output string
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Print what this node and its pods use",
		Long: `stats looks at the node once and prints what it and each pod use, read from the kernel: no kubelet and no cAdvisor is
asked. A source that does not answer within --wait is absent from the output and named on stderr; the others are there.

-o json prints one Summary as the kubelet's Summary API has it (stats/v1alpha1). The sign - in the table: not known.`,
		Example: "  jettison stats\n  jettison stats -o json --wait 30s",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return usageError{fmt.Errorf("--output %q: want table or json", output)}
			}
			if err := flags.load(); err != nil {
				return err
			}
			s, err := sources.Open(flags.options.Options)
			if err != nil {
				return err
			}
			defer s.Close()
			look := observe.Once(cmd.Context(), s, flags.options)
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			for _, err := range []error{look.Runtime.Err, look.HostErr, look.Err, look.Summary.Err()} {
				if err != nil {
					fmt.Fprintln(stderr, "jettison: stats:", strings.ReplaceAll(err.Error(), "\n", "\njettison: stats: "))
				}
			}
			if output == "json" {
				host, _ := os.Hostname()
				e := json.NewEncoder(stdout)
				e.SetIndent("", "  ")
				return e.Encode(summaryv1.From(&look.Summary, host))
			}
			return printStats(stdout, look, flags.options.Config.MemoryAvailable)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// printStats prints the table of signals and pods.
func printStats(stdout io.Writer, look *observe.Look, by stats.MemoryAvailable) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SIGNAL\tAVAILABLE\tOF\tSHARE")
	now := look.Time
	for _, signal := range stats.Signals {
		if o := look.Summary.Observe(now, signal, by); o.OK {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", signal, amount(signal, o.Value), amount(signal, o.Capacity), percent(o))
		}
	}
	fmt.Fprintln(w, "\nPOD\tQOS\tWORKING SET\tREQUEST\tFREED BY KILL\tTHREADS\tCPU\tDISK\tOOM KILLS\tRESTARTS")
	for i := range look.Summary.Pods {
		p := &look.Summary.Pods[i]
		name := p.PodRef.Namespace + "/" + p.PodRef.Name
		if !p.Announced {
			name = "uid:" + p.PodRef.UID
		}
		oom := stats.Opt[uint64]{V: p.Events.V.OOMKill, OK: p.Events.OK}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, cmp.Or(string(p.QOSClass), "-"), size(p.Memory.WorkingSetBytes),
			between(p.MemoryRequest), between(p.Memory.FreedBytes), count(p.Threads), cores(p.CPU.NanoCores), size(p.EphemeralStorage.UsedBytes),
			count(oom), count(p.Restarts))
	}
	return w.Flush()
}

// amount is a signal's figure in its unit.
func amount(signal stats.Signal, v uint64) string {
	if signal == stats.SignalPIDAvailable || strings.HasSuffix(string(signal), "inodesFree") {
		return fmt.Sprint(v)
	}
	return mebi(v)
}

func mebi(v uint64) string {
	switch {
	case v < 10<<10:
		return fmt.Sprintf("%d", v)
	case v < 10<<20:
		return fmt.Sprintf("%dKi", v>>10)
	case v < 100<<30:
		return fmt.Sprintf("%dMi", v>>20)
	}
	return fmt.Sprintf("%dGi", v>>30)
}

func percent(o stats.Observation) string {
	if o.Capacity == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", float64(o.Value)/float64(o.Capacity)*100)
}

func size(v stats.Opt[uint64]) string {
	if !v.OK {
		return "-"
	}
	return mebi(v.V)
}

func count(v stats.Opt[uint64]) string {
	if !v.OK {
		return "-"
	}
	return fmt.Sprint(v.V)
}

func cores(v stats.Opt[uint64]) string {
	if !v.OK {
		return "-"
	}
	return fmt.Sprintf("%dm", (v.V+500_000)/1_000_000)
}

// between is a figure with its error bound.
func between(v stats.Opt[stats.Range]) string {
	switch {
	case !v.OK:
		return "-"
	case v.V.Min == v.V.Max || mebi(v.V.Min) == mebi(v.V.Max):
		return mebi(v.V.Max)
	}
	return mebi(v.V.Min) + ".." + mebi(v.V.Max)
}
