// Package replay prints the decisions that jettison-cluster nodes would make on recorded or
// handwritten frames.
//
//	command.go Command: jettison-cluster replay
//	replay.go  Run
//	frame.go   Frame and its validation
//	json.go    times and quantities of Kubernetes objects
//	reader.go  frames, one per line
//	state.go   the state of the cluster, with the decided actions applied
//	output.go  Output: the decisions on one frame
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-json-experiment/json"

	"jettison/cluster/lifecycle"
	"jettison/cluster/taint"
	"jettison/internal/base/atomicfile"
	"jettison/internal/cluster/config"
)

// Options configures Run.
type Options struct {
	Path   string // file with frames; -: Stdin
	Stdin  io.Reader
	Config *config.Cluster
}

// Run decides on all frames and prints the decisions on each as one JSON object per line. An
// invalid frame ends Run with an error, after the output for the earlier frames.
func Run(ctx context.Context, o Options, stdout io.Writer) (err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("replay: stopped before the end of %s: %w", o.Path, context.Cause(ctx))
		}
	}()
	in, name := o.Stdin, "standard input"
	if file, ok := in.(*os.File); ok && o.Path == "-" {
		in = atomicfile.NewStream(ctx, file)
	}
	if o.Path != "-" {
		file, err := atomicfile.OpenStream(ctx, o.Path)
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		defer func() { _ = file.Close() }()
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeDevice != 0 {
			return fmt.Errorf("replay: %s is a device, want a file of frames", o.Path)
		}
		in, name = file, o.Path
	}
	r := newReader(in, name)
	p := newPlayer(o.Config)
	for {
		f, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line, err := json.Marshal(p.play(f), json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("replay: line %d: encode the output: %w", r.line, err)
		}
		if _, err := stdout.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
}

// player is a cluster where each action succeeds immediately.
type player struct {
	state  *state
	nodes  *lifecycle.Core
	taints *taint.Core
}

func newPlayer(c *config.Cluster) *player {
	return &player{state: newState(), nodes: lifecycle.New(c.Lifecycle()),
		taints: taint.New(c.Taint())}
}

// play decides on all nodes at the frame's time, then on the pods of tainted nodes.
func (p *player) play(f *Frame) *Output {
	p.state.load(f)
	now := f.at
	actions := p.nodes.Step(now, lifecycle.Seen{Nodes: p.state.nodes, Leases: p.state.leases,
		Pods: p.state.podsOf})
	out := newOutput(f, actions)
	for i := range actions.Status {
		p.state.status(&actions.Status[i])
		p.nodes.End(now, actions.Status[i].Node, actions.Status[i].UID, lifecycle.WriteStatus, true)
	}
	for i := range actions.Labels {
		p.state.label(&actions.Labels[i])
		p.nodes.End(now, actions.Labels[i].Node, actions.Labels[i].UID, lifecycle.WriteLabels, true)
	}
	for i := range actions.Taints {
		p.state.taint(&actions.Taints[i])
		p.nodes.End(now, actions.Taints[i].Node, actions.Taints[i].UID, lifecycle.WriteTaints, true)
	}
	for _, m := range actions.Marks {
		p.state.mark(m)
		p.nodes.EndMark(now, m, true)
	}
	evictions := p.taints.Step(now, taint.Seen{Nodes: p.state.nodes, Pods: p.state.podsOf,
		Zone: lifecycle.ZoneOf})
	for i := range evictions.Stamps {
		p.state.stamp(&evictions.Stamps[i])
		p.taints.EndStamp(now, evictions.Stamps[i].UID, true)
	}
	for i := range evictions.Evict {
		p.state.drop(evictions.Evict[i].UID)
		p.taints.End(now, evictions.Evict[i].UID, true)
	}
	out.addEvictions(evictions, actions)
	return out
}
