package words

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed banned.txt
var bannedList string

// Banned is the list of phrases that no text has.
type Banned struct {
	phrases    []phrase
	exceptions []*Exception
}

type phrase struct {
	name    string // as the list has it
	match   *regexp.Regexp
	needs   []string // one of them is in each text that matches, in lower case; none: unknown
	instead string
}

// letters matches what a regular expression has to find as it is written.
var letters = regexp.MustCompile(`^[a-z' ,]+`)

// requiredTexts returns texts of which each match of a pattern has one. It knows alternatives that begin with a word, after \b or not.
func requiredTexts(pattern string) (out []string) {
	depth, from := 0, 0
	parts := []string{}
	for i, c := range pattern {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth == 0:
			parts, from = append(parts, pattern[from:i]), i+1
		}
	}
	for _, part := range append(parts, pattern[from:]) {
		part = strings.TrimPrefix(part, `\b`)
		word := letters.FindString(part)
		if rest := part[len(word):]; strings.HasPrefix(rest, "?") || strings.HasPrefix(rest, "*") {
			word = word[:max(0, len(word)-1)]
		}
		if word, _, _ = strings.Cut(word, " "); word == "" { // a blank may be a line end
			return nil
		}
		out = append(out, strings.ToLower(word))
	}
	return out
}

// mayMatch reports whether a text in lower case can have the phrase.
func (p *phrase) mayMatch(lower string) bool {
	for _, n := range p.needs {
		if strings.Contains(lower, n) {
			return true
		}
	}
	return len(p.needs) == 0
}

// Exception allows a phrase in a file, or in all files of a folder.
type Exception struct {
	Path, Phrase, Reason string
	Used                 bool
}

// Exceptions returns those of the list, with whether a text needed them.
func (b *Banned) Exceptions() []*Exception { return b.exceptions }

// List returns the list of this repository.
func List() (*Banned, error) { return ParseBanned(bannedList) }

// ParseBanned reads a list. A line is a phrase, which is matched as whole words, or a regular
// expression between slashes, then a # and what to write instead. A blank matches any white space. Lines below "exceptions:" are "path:phrase: reason"; a path that ends
// in a slash is a folder. Lines that begin with # are comments.
func ParseBanned(text string) (*Banned, error) {
	b := &Banned{}
	n, exceptions := 0, false
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case line == "exceptions:":
			exceptions = true
		case exceptions:
			e := b.parseException(line)
			if e == nil {
				return nil, fmt.Errorf("line %d: want path:phrase: reason, with a phrase of the list, got %q", n, line)
			}
			b.exceptions = append(b.exceptions, e)
		default:
			p, err := parsePhrase(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			b.phrases = append(b.phrases, p)
		}
	}
	return b, nil
}

func parsePhrase(line string) (phrase, error) {
	name, instead, ok := strings.Cut(line, " #")
	name, instead = strings.TrimSpace(name), strings.TrimSpace(instead)
	if !ok || name == "" || instead == "" {
		return phrase{}, fmt.Errorf("want a phrase, # and its replacement, got %q", line)
	}
	pattern, isPattern := strings.CutPrefix(name, "/")
	if pattern = strings.TrimSuffix(pattern, "/"); !isPattern {
		pattern = `\b` + regexp.QuoteMeta(name) + `\b`
	}
	match, err := regexp.Compile(`(?i)` + strings.ReplaceAll(pattern, " ", `\s+`))
	if err != nil {
		return phrase{}, err
	}
	return phrase{name: name, match: match, needs: requiredTexts(strings.ToLower(pattern)), instead: instead}, nil
}

// parseException returns nil for a line that has another form, or a phrase that is not in the list.
func (b *Banned) parseException(line string) *Exception {
	path, rest, _ := strings.Cut(line, ":")
	for _, p := range b.phrases { // which may have a colon
		reason, ok := strings.CutPrefix(rest, p.name+": ")
		if reason = strings.TrimSpace(reason); ok && reason != "" {
			return &Exception{Path: path, Phrase: p.name, Reason: reason}
		}
	}
	return nil
}

// allowed reports whether a file may have a phrase.
func (b *Banned) allowed(path, name string) bool {
	for _, e := range b.exceptions {
		if e.Phrase == name && (e.Path == path || strings.HasSuffix(e.Path, "/") && strings.HasPrefix(path, e.Path)) {
			e.Used = true
			return true
		}
	}
	return false
}

// banned adds the banned phrases of a text to a report.
func (c *Checker) banned(r *Report, path, text string, line func(offset int) int) {
	if c.Banned == nil {
		return
	}
	lower := strings.ToLower(text)
	for _, p := range c.Banned.phrases {
		if !p.mayMatch(lower) {
			continue
		}
		for _, m := range p.match.FindAllStringIndex(text, -1) {
			if !c.Banned.allowed(path, p.name) {
				r.add(path, line(m[0]), BannedPhrase, "%q, write: %s (%s)", text[m[0]:m[1]], p.instead, context(text, m[0], m[1]))
			}
		}
	}
}
