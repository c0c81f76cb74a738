package frames

import (
	"bufio"
	"context"
	"io"
	"slices"

	"jettison/internal/node/config"
)

// Difference is one field in which two policies decide differently on a frame.
type Difference struct {
	Time   string   `json:"time"`
	Line   int      `json:"line"`   // of the frame
	Field  string   `json:"field"`  // conditions, reclaimed, evictions (UIDs), ranking (its first UID)
	Config []string `json:"config"` // decision of the first policy
	Diff   []string `json:"diff"`   // decision of the other policy
}

// differences returns the differences of two policies' decisions on one frame.
func differences(line int, a, b *Output) (out []Difference) {
	victims := func(o *Output) []string {
		uids := make([]string, 0, len(o.Evictions))
		for i := range o.Evictions {
			uids = append(uids, o.Evictions[i].UID)
		}
		return uids
	}
	first := func(o *Output) []string { return o.Ranking[:min(1, len(o.Ranking))] }
	for _, f := range []struct {
		name string
		of   func(*Output) []string
	}{
		{"conditions", func(o *Output) []string { return o.Conditions }},
		{"reclaimed", func(o *Output) []string { return o.Reclaimed }},
		{"evictions", victims},
		{"ranking", first},
	} {
		if x, y := f.of(a), f.of(b); !slices.Equal(x, y) {
			out = append(out, Difference{Time: a.Time, Line: line, Field: f.name, Config: x, Diff: y})
		}
	}
	return out
}

// Compare plays all frames with two policies and writes their differences, a line of JSON for each
// field. It returns the number of frames, and of frames with differences.
func Compare(ctx context.Context, c, other *config.Config, r *Reader, w io.Writer) (all,
	different int, err error) {
	defer r.Close()
	a, b, out := NewPlayer(c), NewPlayer(other), bufio.NewWriter(w)
	for ctx.Err() == nil {
		f, err := r.Next()
		if err == io.EOF {
			return all, different, nil
		}
		if err != nil {
			return all, different, err
		}
		all++
		found := differences(r.Line(), a.Play(f), b.Play(f))
		if len(found) > 0 {
			different++
		}
		for i := range found {
			if err := writeLine(out, &found[i]); err != nil {
				return all, different, err
			}
		}
	}
	return all, different, ctx.Err()
}
