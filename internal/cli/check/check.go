// Package check implements jettison check: it reports kernel features, sources, kill steps and
// signals of a node, so that an operator knows whether the agent works there.
//
//	command.go     Command: jettison check
//	check.go       run: reads the node and prints the result; kernel features
//	result.go      Result: the findings as JSON and as tables
//	sources.go     the answer of each source
//	selftest.go    the steps of the kill ladder, tried on processes of the command
//	priorities.go  the number of pods of unknown priority
//	values.go      each signal with its value, threshold and age
package check

import (
	"context"
	"errors"
	"fmt"

	"jettison/cgroup"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/cli/check/oomkillers"
	"jettison/internal/node/observe"
	"jettison/internal/node/sources"
	"jettison/stats"
)

// run prints the findings, even if parts failed. It returns the error that the agent would fail
// with, or names the refused steps of the kill ladder.
func run(ctx context.Context, stdout *terminal.Screen, o observe.Options, as output.Format) error {
	r := &Result{Probes: []Probe{}, Sources: []Source{}, Rungs: []Step{}, Signals: []Signal{},
		Rivals: []oomkillers.Rival{}, Notes: []string{}}
	failed := r.inspect(ctx, o)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var err error
	if r.Rivals, err = oomkillers.Find(o.ProcMount); err != nil {
		r.note("%v", err)
	}
	if failed != nil {
		r.Failure = output.OneLine(failed.Error())
	}
	if as.Data() {
		return errors.Join(as.EncodeIndented(stdout, r), failed)
	}
	return errors.Join(r.print(stdout, as == output.AsWide), failed)
}

// inspect fills in the result as far as possible. It returns the error that the agent would fail
// with.
func (r *Result) inspect(ctx context.Context, o observe.Options) error {
	s, err := sources.Open(o.Options)
	if err != nil {
		r.addSource("sources", err, "")
		return err
	}
	defer s.Close()
	for _, f := range cgroup.NewFeatures(s.FS, o.ProcMount, o.SysMount()).Probe() {
		r.Probes = append(r.Probes, Probe{Name: f.Name, Answer: fmt.Sprint(f.Answer), Detail: f.Detail,
			WhatFor: featurePurpose[f.Name]})
	}
	look := observe.Once(ctx, s, o)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed := r.addSources(look.Time, s, look, o.Config.EndpointFrom)
	ladderErr := r.selfTest(ctx, s)
	r.addSignals(look.Time, &look.Summary, o)
	r.notePodsLimit(&look.Summary.Node.PIDs, o)
	r.addPressure(look.Time, &look.Summary.Node.Pressure, o)
	r.countUnknown(ctx, look, s.Reader.Self(), o)
	if n := statusRefused(look.Summary.Pods); n > 0 {
		r.note("the runtime's status of %d of %d pods is too large for the agent: a pod of unknown "+
			"request counts as over its request",
			n, len(look.Summary.Pods))
	}
	if failed != nil {
		return failed
	}
	return ladderErr
}

// statusRefused counts the pods with a runtime status that is too large to read.
func statusRefused(pods []stats.PodStats) (n int) {
	for i := range pods {
		if pods[i].StatusRefused {
			n++
		}
	}
	return n
}

// featurePurpose maps each kernel feature to its purpose.
var featurePurpose = map[string]string{
	"cgroup.kill":           "kills all processes of a pod in one write, also new forks; without it: the runtime kills",
	"memory.reclaim":        "proactive reclaim of cold memory instead of an eviction",
	"memory.peak":           "peak memory use of a pod",
	"psi":                   "pressure signals; if missing: boot with psi=1",
	"psi windows below 2 s": "fast reaction to pressure; if missing: give the agent CAP_SYS_RESOURCE",
	"hugetlb controller":    "excludes huge pages from memory.available",
	"swap":                  "swap.available; reclaim of anonymous memory",
	"memory.swap.current":   "swap use of each pod",
	"mglru":                 "with MGLRU, inactive_file counts the older generations",
	"memory_recursiveprot":  "memory.min of a parent cgroup protects its children",
}
