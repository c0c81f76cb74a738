package frames

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"

	"jettison/eviction"
	"jettison/internal/node/config"
	"jettison/stats"
)

// Player decides on frames with one policy, one after another. It carries nothing out: a kill that
// the frame does not report as failed is complete before the next frame.
type Player struct {
	manager *eviction.Manager
	objects objects
	layout  stats.Layout
	disk    config.Mode
	failed  []*eviction.Life // evictions of the previous frame with a victim that did not die
}

// NewPlayer creates a player for a configuration. The breaker and proactive reclaim are off, and no
// reading is too old.
func NewPlayer(c *config.Config) *Player {
	return &Player{disk: c.Disk, manager: eviction.NewManager(c.Replay())}
}

// Play decides on the next frame.
func (p *Player) Play(f *Frame) *Output {
	now := f.At()
	if f.Pods != nil {
		p.objects = newObjects(f.Pods)
	}
	if f.Layout != nil {
		p.layout = stats.Layout{DedicatedImageFs: f.Layout.DedicatedImageFs,
			SplitContainerFs: f.Layout.SplitContainerFs}
	}
	summary, after := view(now, f.Summary, f.Agent, p.objects, p.layout), (*stats.Summary)(nil)
	if f.AfterReclaim != nil {
		agent := f.AgentAfterReclaim
		if agent == nil {
			agent = f.Agent
		}
		after = view(now, f.AfterReclaim, agent, p.objects, p.layout)
	}
	return p.decide(f, summary, after)
}

// decide makes one step, and its second half after a reclaim. after is nil if the reclaim freed
// nothing.
func (p *Player) decide(f *Frame, summary, after *stats.Summary) *Output {
	now, in := f.At(), eviction.Input{Summary: summary, Pods: p.objects.pods, Foreign: true}
	// the recording agent did not act on disks, because of a kubelet or its configuration
	observed := false
	if a := f.Agent; a != nil {
		in.MemoryOnly, in.Foreign, observed = a.MemoryOnly, !a.Recorded, a.ObserveDisks
	}
	in.ObserveDisks = !p.disk.Acts(observed)
	// The failure is reported with this frame, so that the pods are ranked last here, however much
	// time has passed.
	for _, l := range p.failed {
		p.manager.MarkUndying(now, l)
	}
	p.failed = p.failed[:0]
	d := p.manager.Step(now, in)
	out := newOutput(f, &d)
	if len(d.Reclaim) > 0 {
		if after != nil {
			in.Summary = after
		}
		second := p.manager.StepAfterReclaim(now, in)
		out.add(&second)
		p.carryOut(now, f, &d, &second)
	} else {
		p.carryOut(now, f, &d)
	}
	out.admit(f.Admit)
	return out
}

// carryOut reports the results of evictions to the manager.
func (p *Player) carryOut(now time.Time, f *Frame, decisions ...*eviction.Decision) {
	for _, d := range decisions {
		for _, e := range d.Evictions {
			l := p.manager.Begin(eviction.Stamp{Time: now}, e, d.Signal)
			if _, failed := f.KillErrors[e.Pod.PodRef.UID]; failed {
				p.failed = append(p.failed, l)
				continue
			}
			p.manager.Emptied(eviction.Stamp{Time: now}, l)
			p.manager.Cleaned(eviction.Stamp{}, l)
		}
	}
}

// Run plays all frames and writes the decisions on each as a line of JSON, without delay.
func Run(ctx context.Context, c *config.Config, r *Reader, w io.Writer) error {
	defer r.Close()
	p, out := NewPlayer(c), bufio.NewWriter(w)
	for ctx.Err() == nil {
		f, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := writeLine(out, p.Play(f)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func writeLine(w *bufio.Writer, v any) error {
	err := json.MarshalWrite(w, v, writing)
	if err == nil {
		err = w.WriteByte('\n')
	}
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}
