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

	"jettison/cmd/jettison/internal/gcfiles"
	"jettison/reclaim"
	"jettison/stats"
)

func gcCommand(stdout io.Writer) *cobra.Command {
	var from, output string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Plan which dead containers, sandboxes, logs and images of a node to remove",
		Long: `gc --from DIR plans from files what garbage collection would remove, in which order and why. It needs no runtime, and
removes nothing. DIR holds containers.json, sandboxes.json and images.json, as "crictl ps -a", "crictl pods" and "crictl images"
print them with -o json, and gc.json: the time, the policy, and which pods there are. docs/gc.md has the format.

A malformed file ends it with exit code 1 and the file, line and field; a policy that cannot be, too, after the rest of the plan.
A pass on the live node is not built yet.`,
		Example: "  jettison gc --dry-run --from node1\n  jettison gc --dry-run --from node1 -o json",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			if output != "table" && output != "json" {
				return usageError{fmt.Errorf("--output %q: want table or json", output)}
			}
			if from == "" {
				return errors.New("gc: a pass on the live node is not built yet: give --from DIR to plan from files, see jettison gc --help")
			}
			return gcFrom(from, output, stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "directory of files to plan from")
	f.BoolVar(&dryRun, "dry-run", false, "plan only; with --from nothing else can be done")
	f.StringVarP(&output, "output", "o", "table", "table or json")
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
}

func printPlanJSON(w io.Writer, p *reclaim.Plan) error {
	out := planOutput{
		RemoveContainers: p.IDs(reclaim.RemoveContainer), RemoveSandboxes: p.IDs(reclaim.RemoveSandbox),
		RemoveLogs: p.IDs(reclaim.RemoveLogs), RemoveImages: p.IDs(reclaim.RemoveImage),
		StopFirst: p.StopFirst(), Errors: append([]string{}, p.Errors...),
	}
	for _, left := range p.Left {
		out.Errors = append(out.Errors, "left alone: "+left.String())
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(out)
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
	for _, text := range p.Errors {
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
	if s.Action == reclaim.RemoveLogs {
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
