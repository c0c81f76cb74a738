package planner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"jettison/cluster/deschedule"
	"jettison/internal/base/atomicfile"
	"jettison/internal/base/commandline"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/cluster/descheduler/policyfile"
)

// Size limits of input files, in bytes. A pod takes 5 to 20 KiB in kubectl's JSON.
const (
	maxPolicyBytes = 1 << 20
	maxObjectBytes = 8 << 30
)

// Offline makes a plan from files.
type Offline struct {
	Policy string   // policy file; "-" is standard input
	Diff   string   // second policy file to compare with; empty: none
	From   []string // files with objects
	Now    time.Time
	Format output.Format
	Stdin  io.Reader
}

// Run prints the plan, or the difference between two plans. It writes notices to stderr, one line
// each.
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
	noticeIdle(policy, o.Policy, stderr)
	noticeIdle(other, o.Diff, stderr)
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

func noticeIdle(p *deschedule.Policy, name string, stderr io.Writer) {
	if p != nil && p.Idle() {
		notice(stderr, "policy %s enables no strategy: nothing is evicted", name)
	}
}

// notice writes one line to stderr, even if names contain line breaks.
func notice(stderr io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintln(stderr, "jettison-cluster: deschedule:",
		output.OneLine(fmt.Sprintf(format, args...)))
}

// ReadPolicy reads only the policy. Errors are usage errors.
func (o *Offline) ReadPolicy() (*deschedule.Policy, error) { return o.policy(o.Policy) }

func (o *Offline) policy(path string) (*deschedule.Policy, error) {
	text, name, err := o.read(path, maxPolicyBytes)
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
	all := newObjects()
	for _, path := range o.From {
		add := o.addFile
		if info, err := os.Stat(path); path != "-" && err == nil && info.IsDir() {
			add = o.addFolder
		}
		if err := add(path, all, stderr); err != nil {
			return nil, err
		}
	}
	if err := all.complete(); err != nil {
		return nil, fmt.Errorf("objects %s: %w", o.sources(), err)
	}
	if ignored := all.unusedKinds(); ignored != "" {
		notice(stderr, "ignored objects of unused kinds: %s", ignored)
	}
	if all.differing > 0 {
		notice(stderr, "%s with different versions: the plan uses the newest, for example of %s",
			output.Count(all.differing, "object"), all.firstDiffering)
	}
	if len(all.Pods) == 0 {
		notice(stderr, "objects %s: no Pod found", o.sources())
	}
	if count, first := all.podsOnUnknownNodes(); count > 0 {
		notice(stderr, "ignored %s on nodes that are not among the objects, for example %s/%s on %s",
			output.Count(count, "pod"), first.Namespace, first.Name,
			first.Spec.NodeName)
	}
	return &all.Snapshot, nil
}

// sources names the files and folders with objects.
func (o *Offline) sources() string {
	names := slices.Clone(o.From)
	for i := range names {
		if names[i] == "-" {
			names[i] = "stdin"
		}
	}
	return strings.Join(names, ", ")
}

func (o *Offline) addFile(path string, all *objects, _ io.Writer) error {
	text, name, err := o.read(path, maxObjectBytes)
	if err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	return all.read(text, name)
}

// addFolder adds the JSON and YAML files of a folder, such as the output of "oc adm must-gather".
// It ignores those without Kubernetes objects, and symbolic links.
func (o *Offline) addFolder(folder string, all *objects, stderr io.Writer) error {
	root, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	ignored, example := 0, ""
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("objects: %w", err)
		case !entry.Type().IsRegular() || !slices.Contains(objectFiles, filepath.Ext(path)):
			return nil
		}
		var none noObjectsError
		if err = o.addFile(path, all, stderr); errors.As(err, &none) {
			if ignored++; ignored == 1 {
				example = path
			}
			return nil
		}
		return err
	})
	if ignored > 0 {
		notice(stderr, "ignored %s in %s without Kubernetes objects, for example %s",
			output.Count(ignored, "file"), folder, example)
	}
	return err
}

// objectFiles are the endings of the files that are read in a folder.
var objectFiles = []string{".json", ".yaml", ".yml"}

// read returns the content of a file, and its name for error messages.
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

// migrate prints a v1alpha1 policy as v1alpha2, and on stderr the settings without equivalent. The
// error names strategies that cannot be converted; the others are printed.
func migrate(path string, stdin io.Reader, stdout, stderr io.Writer) error {
	text, name, err := (&Offline{Stdin: stdin}).read(path, maxPolicyBytes)
	if err != nil {
		return commandline.Usage(fmt.Errorf("policy: %w", err))
	}
	policy, notes, left := policyfile.Migrate(text, name)
	if policy == nil {
		return commandline.Usage(left)
	}
	for _, note := range notes {
		_, _ = fmt.Fprintln(stderr, "jettison-cluster: deschedule migrate: not converted:",
			output.OneLine(note))
	}
	if _, err := stdout.Write(policy); err != nil {
		return err
	}
	return left
}
