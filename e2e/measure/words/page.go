package words

import (
	"regexp"
	"slices"
	"strings"
)

var (
	fence    = regexp.MustCompile("^ *(?:>|[-*+]|\\d+\\.)? *(```+|~~~+)")
	rule     = regexp.MustCompile(`^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-*:?\s*)*\|?\s*$`)
	item     = regexp.MustCompile(`^\s*(?:[-*+]|\d+[.)])\s+`)
	link     = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	htmlTag  = regexp.MustCompile(`<[^>]*>`)
	quote    = regexp.MustCompile(`^\s*>\s?`)
	sentence = regexp.MustCompile("[.!?][)\"'*_]*\\s+")
	label    = regexp.MustCompile(`^[a-z_]+: `) // begins a sentence of a list of values
)

// page reads a page of Markdown. Code is skipped; each table cell, list item and heading is a separate text.
func (c *Checker) page(r *Report, path, text string) {
	n := len(strings.Fields(text))
	r.Words += n
	if !slices.Contains(Generated, path) {
		r.HandWritten += n
	}
	for _, p := range paragraphs(text) {
		prose := link.ReplaceAllStringFunc(p.prose(), func(at string) string { // as long as it was
			m := link.FindStringSubmatchIndex(at)
			return strings.Repeat(" ", m[2]) + at[m[2]:m[3]] + strings.Repeat(" ", len(at)-m[3])
		})
		c.banned(r, path, prose, p.lineAt)
		for _, s := range sentences(prose) {
			words := count(prose[s[0]:s[1]])
			if words == 0 {
				continue
			}
			r.Sentences++
			rule := Sentence
			switch {
			case words <= LongSentence:
				continue
			case words > MaxSentence:
				rule = LongestRule
			}
			r.add(path, p.lineAt(s[0]), rule, "%d words: %s", words, shortened(prose[s[0]:s[1]]))
		}
	}
}

func shortened(text string) string {
	words := strings.Fields(maskCode(text))
	if len(words) > 12 {
		words = append(words[:12], "...")
	}
	return strings.Join(words, " ")
}

// paragraphs returns the texts of a page.
func paragraphs(text string) (out []*passage) {
	p := &passage{}
	end := func() {
		if len(p.lines) > 0 {
			out = append(out, p)
		}
		p = &passage{}
	}
	n, fenced, comment, list := 0, "", false, false
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if m := fence.FindStringSubmatch(line); m != nil {
			switch {
			case fenced == "":
				end()
				fenced = m[1][:3]
			case strings.HasPrefix(m[1], fenced):
				fenced = ""
			}
			continue
		}
		if fenced != "" {
			continue
		}
		if comment || strings.HasPrefix(strings.TrimSpace(line), "<!--") {
			comment = !strings.Contains(line, "-->")
			continue
		}
		line = quote.ReplaceAllString(line, "")
		bare := strings.TrimSpace(line)
		indented := strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "\t")
		if bare != "" {
			list = item.MatchString(line) || list && strings.HasPrefix(line, " ")
		}
		switch {
		case bare == "":
			end()
		case indented && !list && len(p.lines) == 0: // a line of code
		case strings.HasPrefix(bare, "|"):
			end()
			if rule.MatchString(bare) {
				continue
			}
			for _, cell := range cells(bare) {
				p.add(n, cell)
				end()
			}
		case strings.HasPrefix(bare, "#"):
			end()
			p.add(n, strings.TrimLeft(bare, "# "))
			end()
		default:
			if item.MatchString(line) {
				end()
				line = item.ReplaceAllString(line, "")
			}
			p.add(n, htmlTag.ReplaceAllString(strings.TrimSpace(line), " "))
		}
	}
	end()
	return out
}

// cells splits a row of a table at its bars, but for those in code and those that are escaped.
func cells(row string) (out []string) {
	var cell strings.Builder
	code := false
	for i := 0; i < len(row); i++ {
		switch {
		case row[i] == '\\' && i+1 < len(row) && row[i+1] == '|':
			cell.WriteByte('|')
			i++
			continue
		case row[i] == '`':
			code = !code
		case row[i] == '|' && !code:
			if s := strings.TrimSpace(cell.String()); s != "" {
				out = append(out, htmlTag.ReplaceAllString(s, " "))
			}
			cell.Reset()
			continue
		}
		cell.WriteByte(row[i])
	}
	if s := strings.TrimSpace(cell.String()); s != "" {
		out = append(out, htmlTag.ReplaceAllString(s, " "))
	}
	return out
}

// abbreviations end in a point that ends no sentence.
var abbreviations = []string{"e.g.", "i.e.", "etc.", "vs.", "cf.", "approx.", "no.", "incl."}

// sentences returns where each sentence of a text begins and ends.
func sentences(text string) (out [][2]int) {
	from := 0
	for _, m := range sentence.FindAllStringIndex(text, -1) {
		if m[1] >= len(text) {
			break
		}
		next := text[m[1]]
		if next >= 'a' && next <= 'z' && !label.MatchString(text[m[1]:]) {
			continue
		}
		words := strings.Fields(text[from : m[0]+1])
		if len(words) > 0 && slices.Contains(abbreviations, strings.ToLower(strings.TrimLeft(words[len(words)-1], "(\"'*"))) {
			continue
		}
		out = append(out, [2]int{from, m[1]})
		from = m[1]
	}
	return append(out, [2]int{from, len(text)})
}

// count returns the words of a text. A piece of code is one.
func count(text string) (n int) {
	for w := range strings.FieldsSeq(text) {
		if wordChar.MatchString(w) || strings.ContainsRune(w, blind) {
			n++
		}
	}
	return n
}
