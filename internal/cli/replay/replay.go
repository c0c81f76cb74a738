// Package replay decides again on frames that were recorded or written: by one policy, or by two,
// to see where they differ.
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
	path   string // of the frames; -: stdin
	stdin  io.Reader
	policy *config.Loaded
	than   *config.Loaded // nil: decisions are printed; else where this policy decides otherwise
}

// load loads a policy. What a person should know about it goes to stderr.
func load(ctx context.Context, path string, stderr io.Writer) (*config.Loaded, error) {
	c, err := config.Load(ctx, path)
	if err != nil {
		return nil, err
	}
	for _, w := range c.Warnings {
		if strings.HasPrefix(w, "not acted on") { // by the agent; here everything is
			continue
		}
		fmt.Fprintln(stderr, "jettison: replay: warning: config:", w)
	}
	return c, nil
}

// run plays all frames and prints what is decided on them, a JSON object a line. How many decisions
// differ goes to stderr.
func run(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = fmt.Errorf("replay: ended before %s did: %w", o.path, context.Cause(ctx))
		}
	}()
	r, done, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer done()
	if o.than == nil {
		return frames.Run(ctx, o.policy.Config, r, stdout)
	}
	all, different, err := frames.Compare(ctx, o.policy.Config, o.than.Config, r, stdout)
	if err == nil {
		fmt.Fprintf(stderr, "jettison: replay: %d of %d frames are decided differently\n", different, all)
	}
	return err
}

// open opens a file of frames, or a pipe: until ctx ends it is waited for who writes to it, as for
// who writes to standard input.
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
