// Package check says what a node can do, which sources answer, and how every signal stands, for a
// person who wants to know whether the agent will work there.
//
//	command.go     Command: jettison check
//	check.go       run: the tables, and what the kernel can do
//	result.go      Result: what was found, for programs, and as tables
//	answers.go     how each source answered
//	rungs.go       the rungs of the kill ladder, tried on processes of its own
//	priorities.go  how many pods' priorities are not known
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

// run prints what was found, whatever fails. The error is what the agent would fail with, or the
// rung of the kill ladder that does not work.
func run(ctx context.Context, stdout *terminal.Screen, o observe.Options, as output.Format) error {
	r := &Result{Probes: []Probe{}, Sources: []Source{}, Rungs: []Rung{}, Signals: []Signal{},
		Rivals: []oomkillers.Rival{}, Notes: []string{}}
	failed := r.look(ctx, o)
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

// look finds everything out that can be. The error is what the agent would fail with.
func (r *Result) look(ctx context.Context, o observe.Options) error {
	s, err := sources.Open(o.Options)
	if err != nil {
		r.source("sources", err, "")
		return err
	}
	defer s.Close()
	for _, f := range cgroup.NewFeatures(s.FS, o.ProcMount, o.SysMount()).Probe() {
		r.Probes = append(r.Probes, Probe{Name: f.Name, Answer: fmt.Sprint(f.Answer), Detail: f.Detail,
			WhatFor: purpose[f.Name]})
	}
	look := observe.Once(ctx, s, o)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	failed := r.askSources(look.Time, s, look, o.Config.EndpointFrom)
	rungs := r.tryLadder(ctx, s)
	r.addSignals(look.Time, &look.Summary, o)
	r.addPressure(look.Time, &look.Summary.Node.Pressure, o)
	r.countUnknown(ctx, look, s.Reader.Self(), o)
	if n := statusRefused(look.Summary.Pods); n > 0 {
		r.note("the runtime's status of %d of %d pods is larger than the agent takes: those of unknown "+
			"request count as over it",
			n, len(look.Summary.Pods))
	}
	if failed != nil {
		return failed
	}
	return rungs
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
