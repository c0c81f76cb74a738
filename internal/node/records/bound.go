package records

import (
	"strings"
	"unicode"

	"jettison/api"
	"jettison/stats"
)

// Limits of a record. Longer texts and lists are cut.
const (
	maxRows  = 10
	maxSteps = 64
	maxWord  = 64
	maxName  = 253
	maxError = 256 // of a step
	maxText  = 2048
	maxKeys  = 512
	maxIDs   = 16

	maxAnnotations = 8
)

// bound cuts texts and lists that are too long, and makes every text one printable line. It does
// not modify slices of the caller.
func bound(r *api.Record) {
	for _, f := range []struct {
		text *string
		most int
	}{
		{&r.ID, maxWord}, {&r.BootID, maxWord}, {&r.Agent, maxWord}, {&r.Pod.UID, maxName},
		{&r.Pod.Namespace, maxName}, {&r.Pod.Name, maxName},
		{(*string)(&r.Pod.QOSClass), maxWord}, {&r.Pod.Cgroup, maxText}, {(*string)(&r.Signal), maxWord},
		{&r.Threshold, maxName},
		{&r.ThresholdGrace, maxWord}, {&r.Reason, maxText}, {&r.Message, maxText},
		{(*string)(&r.Outcome), maxWord}, {&r.Error, maxText},
		{&r.StatusReason, maxWord},
	} {
		*f.text = oneLine(*f.text, f.most)
	}
	r.Crossed, r.Decided, r.After = boundReading(r.Crossed), boundReading(r.Decided),
		boundReading(r.After)
	r.Squeeze = boundSqueeze(r.Squeeze)
	r.Pod.SandboxIDs = boundEach(r.Pod.SandboxIDs, maxIDs,
		func(id string) string { return oneLine(id, maxName) })
	r.Ranking.Rows = boundEach(r.Ranking.Rows, maxRows, boundCandidate)
	r.Steps = boundEach(r.Steps, maxSteps, boundStep)
	r.Annotations = boundAnnotations(r.Annotations)
}

// boundEach returns a new list of the first bounded items.
func boundEach[T any](items []T, most int, bound func(T) T) []T {
	out := make([]T, 0, min(len(items), most))
	for _, item := range items[:cap(out)] {
		out = append(out, bound(item))
	}
	return out
}

// boundAnnotations returns a new map, or nil if there are no annotations or more than any eviction
// has.
func boundAnnotations(all map[string]string) map[string]string {
	if len(all) == 0 || len(all) > maxAnnotations {
		return nil
	}
	out := map[string]string{}
	for key, value := range all {
		out[oneLine(key, maxName)] = oneLine(value, maxText)
	}
	return out
}

func boundReading(r *api.Reading) *api.Reading {
	if r == nil {
		return nil
	}
	clean := *r
	clean.Text, clean.Reason = oneLine(r.Text, maxWord), oneLine(r.Reason, maxText)
	return &clean
}

func boundSqueeze(s *api.ProactiveReclaim) *api.ProactiveReclaim {
	if s == nil {
		return nil
	}
	clean := *s
	clean.Signal, clean.Kind = stats.Signal(oneLine(string(s.Signal), maxWord)),
		oneLine(s.Kind, maxWord)
	return &clean
}

func boundCandidate(c api.Candidate) api.Candidate {
	return api.Candidate{
		Pod: oneLine(c.Pod, 2*maxName+1), UID: oneLine(c.UID, maxName),
		QOSClass:  stats.QOSClass(oneLine(string(c.QOSClass), maxWord)),
		DecidedBy: oneLine(c.DecidedBy, maxWord), Keys: oneLine(c.Keys, maxKeys),
	}
}

func boundStep(s api.Step) api.Step {
	s.Name, s.Error = oneLine(s.Name, maxWord), oneLine(s.Error, maxError)
	return s
}

// oneLine returns untrusted text as one line that is safe for a terminal. It cuts the text and
// replaces each unprintable character with a question mark.
func oneLine(text string, most int) string {
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) { // U+0020 is the only space for IsPrint
			return '?'
		}
		return r
	}, text)
}
