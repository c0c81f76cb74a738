package words

import (
	"regexp"
	"slices"
	"strings"
)

// passage is a text that was joined from lines, without its code.
type passage struct {
	text   strings.Builder
	starts []int // offset of each line
	lines  []int // its number
}

// add appends a line.
func (p *passage) add(n int, line string) {
	if p.text.Len() > 0 {
		p.text.WriteByte(' ')
	}
	p.starts = append(p.starts, p.text.Len())
	p.lines = append(p.lines, n)
	p.text.WriteString(line)
}

// blind replaces a character of code.
const blind = '\x01'

var span = regexp.MustCompile("``[^`].*?``|`[^`]*`")

// prose returns the text with every character in backticks replaced by blind. Offsets do not change.
func (p *passage) prose() string {
	return span.ReplaceAllStringFunc(p.text.String(), func(code string) string {
		return strings.Repeat(string(blind), len(code))
	})
}

// lineAt returns the number of the line that contains an offset.
func (p *passage) lineAt(offset int) int {
	i, found := slices.BinarySearch(p.starts, offset)
	if !found {
		i--
	}
	return p.lines[max(i, 0)]
}

// context returns a place with the words next to it.
func context(text string, from, to int) string {
	from, to = max(0, from-25), min(len(text), to+25)
	for from > 0 && text[from-1] != ' ' {
		from--
	}
	for to < len(text) && text[to] != ' ' {
		to++
	}
	return maskCode(text[from:to])
}

var blinded = regexp.MustCompile(string(blind) + "+")

// maskCode replaces each piece of code by a mark.
func maskCode(text string) string { return blinded.ReplaceAllString(text, "`...`") }

// nominal matches a word that can begin a free relative, with the words before and after it.
var nominal = regexp.MustCompile(`(?i)(?:([a-z']+) )?\b(what|whatever|who|whoever|whom|whomever|that which) +([a-z']+)`)

// asks are words after "what" that make it a question or an order: "what to do", "what kind of".
var asks = []string{"to", "kind", "kinds", "sort", "happens", "happened", "if", "about"}

// people are nouns that a relative clause with "who" follows.
var people = []string{"user", "users", "operator", "operators", "reader", "readers", "people", "someone", "anyone", "everyone",
	"administrator", "administrators", "attacker", "attackers", "maintainer", "maintainers", "author", "authors", "person",
	"engineer", "engineers", "developer", "developers"}

// freeRelatives returns where each free relative of a text begins and ends.
func freeRelatives(text string) (out [][2]int) {
	for at := 0; at < len(text); {
		m := nominal.FindStringSubmatchIndex(text[at:])
		if m == nil {
			break
		}
		before := ""
		if m[2] >= 0 {
			before = strings.ToLower(text[at+m[2] : at+m[3]])
		}
		word, after := strings.ToLower(text[at+m[4]:at+m[5]]), strings.ToLower(text[at+m[6]:at+m[7]])
		question := strings.HasPrefix(word, "what") && slices.Contains(asks, after)
		relative := word == "who" && slices.Contains(people, before)
		if !question && !relative {
			out = append(out, [2]int{at + m[4], at + m[7]})
		}
		at += m[5]
	}
	return out
}
