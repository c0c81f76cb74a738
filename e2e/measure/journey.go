package main

import (
	"fmt"
	"go/ast"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A journey is what a reader follows to understand one thing: a tree of calls, written as a text
// file.
//
//	# a comment
//	internal/bridge/deliver (*follower).run
//	  api (*Client).FollowRecords | internal/old/place FollowRecords
//	  ? internal/bridge/deliver (*follower).see
//
// A line names a package's folder and a function of it, and is indented by two spaces below its
// caller. Of names with | between them the first that exists counts. A step that begins with ? is
// skipped where it does not exist. What a function hands over by a channel or a callback is a call,
// too.
//
// A variant for another layout has the steps of the first one under their names there, so that the
// figures can be compared. What a step of the first one did by itself and has others do there is a
// step if the journey leads through it. What was a function of its own and no step is none there,
// either.
//
// The reader enters the file of a function, then those of its calls in their order, and returns to
// the caller after each call but the last. Files is how many distinct files the reader enters.
// Returns is how often a call leads from one file to another that was left before. Back is how
// often the reader returns to a caller in another file: these are counted apart, for a call costs
// one whichever other file has the callee.

// step is one line.
type step struct {
	names    []string // alternatives
	optional bool
	calls    []*step
}

// parseJourney reads the steps of a journey. They are the calls of the step that is returned.
func parseJourney(text string) (*step, error) {
	root := &step{}
	open := []*step{root}
	n := 0
	for line := range strings.Lines(text) {
		n++
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || strings.HasPrefix(trimmed, "#") {
			continue
		}
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if indent%2 != 0 || indent/2 >= len(open) {
			return nil, fmt.Errorf("line %d: indent by two spaces below the caller", n)
		}
		s := &step{}
		trimmed, s.optional = strings.CutPrefix(trimmed, "? ")
		for name := range strings.SplitSeq(trimmed, "|") {
			fields := strings.Fields(name)
			if len(fields) != 2 {
				return nil, fmt.Errorf("line %d: %q: want a folder and a function", n, strings.TrimSpace(name))
			}
			s.names = append(s.names, strings.Join(fields, " "))
		}
		open = open[:indent/2+1]
		caller := open[len(open)-1]
		caller.calls = append(caller.calls, s)
		open = append(open, s)
	}
	return root, nil
}

// functions returns the file of each function of the product, by folder and name as a journey has
// them.
func functions(t *tree) map[string]string {
	out := map[string]string{}
	t.funcs(func(f *file, d *ast.FuncDecl) {
		name := d.Name.Name
		if of := receiver(d); of != "" {
			if _, pointer := d.Recv.List[0].Type.(*ast.StarExpr); pointer {
				of = "*" + of
			}
			name = "(" + of + ")." + name
		}
		out[f.dir+" "+name] = f.path
	})
	return out
}

// trip is where a reader has been.
type trip struct {
	files   []string // in the order in which they were first entered
	returns []string // by a call
	back    []string // to a caller
	at      string
	missing string // the first step that does not exist; empty: all do
}

// enter reads a function that is called.
func (t *trip) enter(file string) {
	switch {
	case file == t.at:
	case slices.Contains(t.files, file):
		t.returns = append(t.returns, "return from "+t.at+" to "+file)
	default:
		t.files = append(t.files, file)
	}
	t.at = file
}

// leave reads on in the caller.
func (t *trip) leave(caller string) {
	if caller != "" && caller != t.at {
		t.back = append(t.back, "back from "+t.at+" to "+caller)
		t.at = caller
	}
}

// walk reads a function, and then its calls.
func (t *trip) walk(s *step, fileOf map[string]string) {
	file := t.find(s, fileOf)
	if file == "" {
		return
	}
	t.enter(file)
	t.calls(s, file, fileOf)
}

func (t *trip) calls(s *step, file string, fileOf map[string]string) {
	for i, call := range s.calls {
		t.walk(call, fileOf)
		if t.missing != "" {
			return
		}
		if i < len(s.calls)-1 {
			t.leave(file)
		}
	}
}

// find returns the file of a step; empty: the step is missing, or skipped.
func (t *trip) find(s *step, fileOf map[string]string) string {
	for _, name := range s.names {
		if file := fileOf[name]; file != "" {
			return file
		}
	}
	if !s.optional {
		t.missing = strings.Join(s.names, " or ")
	}
	return ""
}

// journeyRows has a row for each folder of journeys. The first variant counts all of whose steps
// the tree has.
func journeyRows(t *tree, journeys fs.FS) (rows []row, err error) {
	names, err := fs.ReadDir(journeys, ".")
	if err != nil {
		return nil, err
	}
	fileOf := functions(t)
	for _, name := range names {
		variants, err := fs.Glob(journeys, path.Join(name.Name(), "*.txt"))
		if err != nil {
			return nil, err
		}
		what := "journey: " + strings.ReplaceAll(name.Name(), "-", " ") + ", files / returns / back"
		r := row{what: what, figure: na}
		for _, variant := range variants {
			trip, err := take(journeys, variant, fileOf)
			if err != nil {
				return nil, err
			}
			if trip.missing == "" {
				r.figure = fmt.Sprintf("%d / %d / %d", len(trip.files), len(trip.returns), len(trip.back))
				r.places = slices.Concat(trip.files, trip.returns, trip.back)
				break
			}
			r.figure += fmt.Sprintf(": step %s not found", trip.missing)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func take(journeys fs.FS, variant string, fileOf map[string]string) (*trip, error) {
	text, err := fs.ReadFile(journeys, variant)
	if err != nil {
		return nil, err
	}
	root, err := parseJourney(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variant, err)
	}
	out := &trip{}
	out.calls(root, "", fileOf)
	return out, nil
}
