package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"jettison/internal/gcfiles"
	"jettison/reclaim"
	"jettison/stats"
)

func gcCommand(stdout io.Writer) *cobra.Command {
	var from string
	var live gcLive
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove dead containers, sandboxes, logs and images of this node, or plan to",
		Long: `gc makes one pass on this node: it removes dead containers, sandboxes, logs, links, cgroups and images by the rules of the
configuration, each step checked again right before it is done, and prints what became of each. --dry-run prints the plan. Beside a kubelet
it only plans, unless the configuration says gc: act. Which pods are gone it knows from the runtime, static manifests and what an
earlier pass has seen, which lies in --state-dir, else in stateDir of the configuration: docs/use/gc.md.

gc --from DIR plans from files what garbage collection would remove, in which order and why. It needs no runtime, and
removes nothing. DIR holds containers.json, sandboxes.json and images.json, as "crictl ps -a", "crictl pods" and "crictl images"
print them with -o json, and gc.json: the time, the policy, and which pods there are. docs/reference/formats.md has the format.

A step that failed, a runtime that does not answer or is slow, a malformed file or a policy that cannot be: exit code 1, after the rest.`,
		Example: "  jettison gc --dry-run\n  jettison gc -o json\n  jettison gc --dry-run --from node1 -o json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if live.output != "table" && live.output != "json" {
				return usageError{fmt.Errorf("--output %q: want table or json", live.output)}
			}
			live.stateSet = cmd.Flags().Changed("state-dir")
			if from == "" {
				return live.run(cmd.Context(), stdout)
			}
			return gcFrom(from, live.output, stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "directory of files to plan from; nothing else is looked at, and nothing removed")
	f.BoolVar(&live.dryRun, "dry-run", false, "plan only")
	f.StringVarP(&live.output, "output", "o", "table", "table or json")
	f.StringVar(&live.trigger, "trigger", "periodic", "periodic, or diskPressure: what the periodic pass keeps for convenience goes too")
	f.StringVar(&live.stateDir, "state-dir", "", "where is kept what outlives a pass; \"\": nothing is (default stateDir of the configuration)")
	live.addPlaces(cmd)
	return cmd
}

// gcFrom plans from files and prints the plan. The error may be about the policy: then the plan without that part is printed.
func gcFrom(dir, output string, stdout io.Writer) error {
	node, err := gcfiles.Read(dir)
	if err != nil {
		return fmt.Errorf("gc: %w", err)
	}
	plan := node.Plan()
	if output == "json" {
		err = printPlanJSON(stdout, &plan)
	} else {
		err = printPlan(stdout, &plan)
	}
	for _, wrong := range []struct {
		part string
		err  error
	}{{"container", node.Policy.Container.Validate()}, {"image", node.Policy.Image.Validate()}} {
		if wrong.err != nil {
			err = errors.Join(err, fmt.Errorf("gc: %s: policy.%s: %w", dir+"/"+gcfiles.GCFile, wrong.part, wrong.err))
		}
	}
	return err
}

// planOutput is a plan as -o json prints it.
type planOutput struct {
	RemoveContainers []string `json:"removeContainers"`
	RemoveSandboxes  []string `json:"removeSandboxes"`
	RemoveLogs       []string `json:"removeLogs"`
	RemoveImages     []string `json:"removeImages"`
	StopFirst        []string `json:"stopFirst"`
	Errors           []string `json:"errors"`

	// Of a pass on the live node only.
	RemoveLinks   []string  `json:"removeLinks,omitempty"`
	RemoveCgroups []string  `json:"removeCgroups,omitempty"`
	Result        *gcResult `json:"result,omitempty"`
}

func printPlanJSON(w io.Writer, p *reclaim.Plan) error { return encode(w, planJSON(p)) }

func encode(w io.Writer, out any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(out)
}

func planJSON(p *reclaim.Plan) *planOutput {
	out := &planOutput{
		RemoveContainers: p.IDs(reclaim.RemoveContainer), RemoveSandboxes: p.IDs(reclaim.RemoveSandbox),
		RemoveLogs: p.IDs(reclaim.RemoveLogs), RemoveImages: p.IDs(reclaim.RemoveImage),
		StopFirst: p.StopFirst(), Errors: p.Problems(),
	}
	for _, left := range p.Left {
		out.Errors = append(out.Errors, "left alone: "+left.String())
	}
	return out
}

// printPlan prints a plan as a table, in the order in which it would be carried out.
func printPlan(stdout io.Writer, p *reclaim.Plan) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	if len(p.Steps) > 0 {
		fmt.Fprintln(w, "STEP\tACTION\tID\tNAME\tAGE\tFREES\tWHY")
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		age := "-"
		if !s.Since.IsZero() {
			age = p.Time.Sub(s.Since).Round(time.Second).String()
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, s.Action, shortID(s), orDash(printable(s.Name)), age, size(s.Bytes), s.Why)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if sum, unknown := p.Bytes(); len(p.Steps) == 0 {
		fmt.Fprintln(stdout, "nothing to remove")
	} else {
		fmt.Fprintf(stdout, "\n%d steps, which should free %s", len(p.Steps), size(stats.Some(sum)))
		if unknown > 0 {
			fmt.Fprintf(stdout, " and what %d steps free that say nothing of it", unknown)
		}
		fmt.Fprintln(stdout)
	}
	for _, text := range p.Problems() {
		fmt.Fprintln(stdout, "error:", text)
	}
	for _, left := range p.Left {
		fmt.Fprintln(stdout, "left alone:", left)
	}
	return nil
}

// shortID is as much of an ID as people use.
func shortID(s *reclaim.Step) string {
	id := s.ID
	if s.Action == reclaim.RemoveLogs || s.Action == reclaim.RemoveLink || s.Action == reclaim.RemoveCgroup {
		return printable(id)
	}
	id = strings.TrimPrefix(id, "sha256:")
	return printable(id[:min(len(id), 13)])
}

// printable is a text from outside on one line.
func printable(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) {
		return fmt.Sprintf("%q", text)
	}
	return text
}
