// Package top is jettison top: the pods of a node by what killing each would free, as the kernel
// has it, again and again.
//
//	command.go Command: jettison top
//	top.go     run: looks, one after the other, and keys
//	table.go   a look as people read it
//	sort.go    what pods are sorted by
package top

import (
	"context"
	"fmt"
	"os"
	"time"

	"jettison/cri"
	"jettison/internal/base/output"
	"jettison/internal/base/terminal"
	"jettison/internal/node/sources"
	"jettison/stats"
	"jettison/stats/read"
)

// options of run.
type options struct {
	sources sources.Options
	stdin   *os.File
	every   time.Duration // between two looks
	times   int           // how many; 0: until it is ended, or one where nobody looks on
	sort    string        // of sortNames
	format  output.Format
}

// listEvery is how often the runtime is asked for the names of pods, and listLimit for how long.
const (
	listEvery = 10 * time.Second
	listLimit = 2 * time.Second
)

// view is what is looked at, and how it is shown.
type view struct {
	o       options
	s       *sources.Sources
	pods    read.Index
	listed  time.Time
	trouble string // why names are not known
	before  map[string]held
	sort    int
	summary stats.Summary
}

// held is what a pod had at the last look.
type held struct {
	at  time.Time
	set uint64
}

// run looks until it is ended. What pods grow by is the difference of two looks, so that the first
// one is made twice.
func run(ctx context.Context, o options, out *terminal.Screen) error {
	s, err := sources.Open(o.sources)
	if err != nil {
		return err
	}
	defer s.Close()
	v := &view{o: o, s: s, before: map[string]held{}, sort: sortBy(o.sort)}
	live := out.Terminal() && o.times == 0 && !o.format.Data()
	times := o.times
	if times == 0 && !live {
		times = 1
	}
	var keys <-chan string
	if live {
		if read, err := terminal.Read(ctx, o.stdin); err == nil { // else no keys: it ends by a signal
			defer func() { _ = read.Close() }()
			keys = read.C
		}
	}
	v.look(ctx)
	for n := 1; ; n++ {
		if more, err := v.wait(ctx, keys, out); !more {
			return err
		}
		rows := v.look(ctx)
		if err := v.print(rows, live, out); err != nil || n == times {
			return err
		}
	}
}

// wait lets time pass until the next look. Keys change what is shown at once; more is false where
// it is to end.
func (v *view) wait(ctx context.Context, keys <-chan string, out *terminal.Screen) (more bool,
	err error) {
	timer := time.NewTimer(v.o.every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-timer.C:
			return true, nil
		case key, open := <-keys:
			switch {
			case !open || key == "q" || key == terminal.KeyQuit:
				return false, nil
			case key == "s" || key == terminal.KeyRight:
				v.sort = (v.sort + 1) % len(sorts)
			case key == terminal.KeyLeft:
				v.sort = (v.sort + len(sorts) - 1) % len(sorts)
			default:
				continue
			}
			if err := v.print(v.rows(), true, out); err != nil {
				return false, err
			}
		}
	}
}

// look reads every pod. The runtime gives names: without it pods have their UIDs.
func (v *view) look(ctx context.Context) []row {
	if now := time.Now(); now.Sub(v.listed) >= listEvery {
		v.listed = now
		v.list(ctx)
	}
	v.remember()
	if err := v.s.Reader.Collect(time.Now(), v.pods, &v.summary); err != nil {
		v.trouble = err.Error()
	}
	return v.rows()
}

func (v *view) list(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	listing, err := cri.NewLister(v.s.Client).List(ctx)
	if v.trouble = ""; err != nil {
		v.trouble = fmt.Sprintf("pods have no names: the runtime does not answer: %s",
			sources.Diagnose(v.s.Client.Endpoint(), err))
		return
	}
	v.pods = read.NewIndex(listing)
}

// remember keeps what pods had.
func (v *view) remember() {
	clear(v.before)
	for i := range v.summary.Pods {
		p := &v.summary.Pods[i]
		if p.Memory.WorkingSetBytes.OK {
			v.before[p.PodRef.UID] = held{at: p.Memory.Time, set: p.Memory.WorkingSetBytes.V}
		}
	}
}
