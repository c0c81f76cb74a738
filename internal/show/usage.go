package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"jettison/internal/observe"
	"jettison/internal/summaryv1"
	"jettison/stats"
)

// Node prints what a look at a node has found, as a table or as one Summary of the kubelet's (stats/v1alpha1). by is how memory.available
// is computed in the table. What could not be seen is named on stderr.
func Node(look *observe.Look, by stats.MemoryAvailable, inJSON bool, stdout, stderr io.Writer) error {
	for _, err := range []error{look.Runtime.Err, look.HostErr, look.Err, look.Summary.Err()} {
		for _, line := range errorLines(err) {
			fmt.Fprintln(stderr, "jettison: stats:", line)
		}
	}
	if inJSON {
		host, _ := os.Hostname()
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		return e.Encode(summaryv1.From(&look.Summary, host))
	}
	return usage(stdout, look, by)
}

// usage prints a table of the signals and one of the pods.
func usage(stdout io.Writer, look *observe.Look, by stats.MemoryAvailable) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SIGNAL\tAVAILABLE\tOF\tSHARE")
	now := look.Time
	for _, signal := range stats.Signals {
		if o := look.Summary.Observe(now, signal, by); o.OK {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", signal, Amount(signal, o.Value), Amount(signal, o.Capacity), Percent(o))
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", Printable(name), cmp.Or(string(p.QOSClass), "-"),
			Size(p.Memory.WorkingSetBytes),
			Between(p.MemoryRequest), Between(p.Memory.FreedBytes), Count(p.Threads), Cores(p.CPU.NanoCores), Size(p.EphemeralStorage.UsedBytes),
			Count(oom), Count(p.Restarts))
	}
	return w.Flush()
}
