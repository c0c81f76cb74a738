package planner

import (
	"fmt"
	"io"
	"os"
	"time"

	"jettison/cluster/deschedule"
	"jettison/internal/base/atomicfile"
	"jettison/internal/base/commandline"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/descheduler/policyfile"
)

// Bounds of what is read, in bytes: a pod of kubectl's JSON has 5 to 20 KiB.
const (
	mostPolicy  = 1 << 20
	mostObjects = 8 << 30
)

// Offline is a plan from files.
type Offline struct {
	Policy string   // a file of a policy; "-" is standard input
	Diff   string   // another one, to compare with; empty: none
	From   []string // files of objects
	Now    time.Time
	Format output.Format
	Stdin  io.Reader
}

// Run prints the plan, or how two differ. What it has to say beside goes to stderr, one line each.
func (o *Offline) Run(stdout *terminal.Screen, stderr io.Writer) error {
	policy, err := o.ReadPolicy()
	if err != nil {
		return err
	}
	var other *deschedule.Policy
	if o.Diff != "" {
		if other, err = o.policy(o.Diff); err != nil {
			return err
		}
	}
	noteIdle(policy, o.Policy, stderr)
	noteIdle(other, o.Diff, stderr)
	snapshot, err := o.snapshot(stderr)
	if err != nil {
		return err
	}
	plan, err := deschedule.Plan(policy, snapshot, o.Now)
	if err != nil {
		return commandline.Usage(fmt.Errorf("policy %s: %w", o.Policy, err))
	}
	if other == nil {
		return Print(plan, o.Format, stdout)
	}
	second, err := deschedule.Plan(other, snapshot, o.Now)
	if err != nil {
		return commandline.Usage(fmt.Errorf("policy %s: %w", o.Diff, err))
	}
	return printDiff(plan, second, o, stdout)
}

func noteIdle(p *deschedule.Policy, name string, stderr io.Writer) {
	if p != nil && p.Idle() {
		note(stderr, "policy %s enables no strategy: it evicts nobody", name)
	}
}

// note says something in one line, whatever names are in it.
func note(stderr io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintln(stderr, "jettison-cluster: deschedule:",
		output.OneLine(fmt.Sprintf(format, args...)))
}

// ReadPolicy reads the policy alone. An error is one of usage.
func (o *Offline) ReadPolicy() (*deschedule.Policy, error) { return o.policy(o.Policy) }

func (o *Offline) policy(path string) (*deschedule.Policy, error) {
	text, name, err := o.read(path, mostPolicy)
	if err != nil {
		return nil, commandline.Usage(fmt.Errorf("policy: %w", err))
	}
	policy, err := policyfile.Decode(text, name)
	if err != nil {
		return nil, commandline.Usage(err)
	}
	return policy, nil
}

func (o *Offline) snapshot(stderr io.Writer) (*deschedule.Snapshot, error) {
	all := &objects{seen: map[string]bool{}, unused: map[string]int{}}
	for _, path := range o.From {
		text, name, err := o.read(path, mostObjects)
		if err != nil {
			return nil, fmt.Errorf("objects: %w", err)
		}
		if err := all.read(text, name); err != nil {
			return nil, err
		}
	}
	if err := all.complete(); err != nil {
		return nil, err
	}
	if left := all.leftOut(); left != "" {
		note(stderr, "objects of these kinds change no plan, and are left out: %s", left)
	}
	if len(all.Pods) == 0 {
		note(stderr, "there is no Pod among the objects")
	}
	if count, such := all.elsewhere(); count > 0 {
		note(stderr, "%d pods are left alone, whose nodes are not among the objects, such as %s/%s on %s",
			count, such.Namespace, such.Name,
			such.Spec.NodeName)
	}
	return &all.Snapshot, nil
}

// read gives a file's text, and what it is called in errors.
func (o *Offline) read(path string, most int64) ([]byte, string, error) {
	if path == "-" {
		text, err := atomicfile.ReadAll(o.Stdin, most)
		return text, "stdin", err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, path, err
	}
	defer func() { _ = f.Close() }()
	text, err := atomicfile.ReadAll(f, most)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return text, path, err
}

// migrate prints a policy of v1alpha1 as one of v1alpha2, and on stderr what has no successor.
func migrate(path string, stdin io.Reader, stdout, stderr io.Writer) error {
	text, name, err := (&Offline{Stdin: stdin}).read(path, mostPolicy)
	if err != nil {
		return commandline.Usage(fmt.Errorf("policy: %w", err))
	}
	policy, notes, err := policyfile.Migrate(text, name)
	if err != nil {
		return commandline.Usage(err)
	}
	for _, note := range notes {
		_, _ = fmt.Fprintln(stderr, "jettison-cluster: deschedule migrate: no successor:",
			output.OneLine(note))
	}
	_, err = stdout.Write(policy)
	return err
}
