// Package replay implements jettison replay: it recomputes the decisions on frames with one policy,
// or compares those of two.
package replay

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"jettison/internal/base/atomicfile"
	"jettison/internal/node/config"
	"jettison/internal/node/frames"
)

// options of run.
type options struct {
	path   string // file of frames; "-": stdin
	stdin  io.Reader
	policy *config.Loaded
	other  *config.Loaded // nil: print decisions; else print the differences to this policy
}

// load reads a policy and prints its warnings on stderr.
func load(ctx context.Context, path string, stderr io.Writer) (*config.Loaded, error) {
	c, err := config.Load(ctx, path)
	if err != nil {
		return nil, err
	}
	for _, w := range c.Warnings {
		if strings.HasPrefix(w, "not acted on") { // applies to the agent only: replay acts on every field
			continue
		}
		fmt.Fprintln(stderr, "jettison: replay: warning: config:", w)
	}
	return c, nil
}

// run replays all frames and prints the decisions, one JSON object a line. It prints the number of
// different decisions on stderr.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("replay: interrupted while reading %s: %w", o.path, context.Cause(ctx))
		}
	}()
	r, done, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer done()
	r.Warn = func(err error) {
		fmt.Fprintf(stderr, "jettison: replay: warning: %v; such figures count as absent\n", err)
	}
	if o.other == nil {
		return frames.Run(ctx, o.policy.Config, r, stdout)
	}
	all, different, err := frames.Compare(ctx, o.policy.Config, o.other.Config, r, stdout)
	if err == nil {
		fmt.Fprintf(stderr, "jettison: replay: decisions differ in %d of %d frames\n", different, all)
	}
	return err
}

// open opens a file of frames, or a pipe. Reading a pipe or stdin waits for the writer until ctx
// ends.
func open(ctx context.Context, o options) (r *frames.Reader, done func(), err error) {
	if o.path == "-" {
		in := o.stdin
		if file, ok := in.(*os.File); ok {
			in = atomicfile.NewStream(ctx, file)
		}
		r, err := frames.NewReader(in, "standard input")
		return r, func() {}, err
	}
	file, err := atomicfile.OpenStream(ctx, o.path)
	if err != nil {
		return nil, nil, fmt.Errorf("replay: %w", err)
	}
	if r, err = frames.NewReader(file, o.path); err != nil {
		_ = file.Close()
		return nil, nil, err
	}
	return r, func() { _ = file.Close() }, nil
}
