// Package top implements jettison top: a live table of a node's pods by the memory that killing
// each would free, read from the kernel.
//
//	command.go Command: jettison top
//	top.go     run: reads the node periodically and handles keys
//	table.go   the table of one look
//	sort.go    sort keys
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
	sources  sources.Options
	stdin    *os.File
	interval time.Duration // between two looks
	times    int           // number of outputs; 0: no limit on a terminal, else one
	sort     string        // one of sortNames
	format   output.Format
}

// The runtime lists the pods every listInterval within listTimeout.
const (
	listInterval = 10 * time.Second
	listTimeout  = 2 * time.Second
)

// view holds the last look and the display settings.
type view struct {
	o       options
	s       *sources.Sources
	pods    read.Index
	listed  time.Time
	listErr string             // error of the last look, or of the listing of pods; empty: none
	before  map[string]reading // by pod UID
	sort    int
	summary stats.Summary
}

// reading is the working set of a pod at the last look.
type reading struct {
	at         time.Time
	workingSet uint64
}

// run prints looks until the context ends or q is pressed. Growth needs two looks, so that run
// takes one before the first output.
func run(ctx context.Context, o options, out *terminal.Screen) error {
	s, err := sources.Open(o.sources)
	if err != nil {
		return err
	}
	defer s.Close()
	v := &view{o: o, s: s, before: map[string]reading{}, sort: sortIndex(o.sort)}
	live := out.Terminal() && o.times == 0 && !o.format.Data()
	times := o.times
	if times == 0 && !live {
		times = 1
	}
	var keys <-chan string
	if live {
		if read, err := terminal.Read(ctx, o.stdin); err == nil { // without keys only a signal ends the command
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

// wait waits for the next look. A key that changes the sort column repaints immediately; more is
// false if the command ends.
func (v *view) wait(ctx context.Context, keys <-chan string, out *terminal.Screen) (more bool,
	err error) {
	timer := time.NewTimer(v.o.interval)
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

// look reads every pod. Pod names come from the runtime; without it, pods show their UIDs.
func (v *view) look(ctx context.Context) []row {
	if now := time.Now(); now.Sub(v.listed) >= listInterval {
		v.listed = now
		v.list(ctx)
	}
	v.remember()
	if err := v.s.Reader.Collect(time.Now(), v.pods, &v.summary); err != nil {
		v.listErr = err.Error()
	}
	return v.rows()
}

func (v *view) list(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	listing, err := cri.NewLister(v.s.Client).List(ctx)
	if v.listErr = ""; err != nil {
		v.listErr = fmt.Sprintf("pod names unknown, the container runtime does not answer: %s",
			sources.Diagnose(v.s.Client.Endpoint(), err))
		return
	}
	v.pods = read.NewIndex(listing)
	v.o.sources.OutsideFinder(v.s.Client).Find(v.pods)
}

// remember stores the working sets of the last look.
func (v *view) remember() {
	clear(v.before)
	for i := range v.summary.Pods {
		p := &v.summary.Pods[i]
		if p.Memory.WorkingSetBytes.OK {
			v.before[p.PodRef.UID] = reading{at: p.Memory.Time, workingSet: p.Memory.WorkingSetBytes.V}
		}
	}
}
