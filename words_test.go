package jettison

import (
	"fmt"
	"sync"
	"testing"

	"jettison/e2e/measure/words"
)

// enforced has the rules of words that fail the tests. One that is not enforced logs its count. e2e/measure/words finds the
// places, and "go run ./e2e/measure -words FOLDER" lists those of a folder. The rules serve readers: if one makes a text worse,
// change the rule and say why.
var enforced = map[string]bool{
	"banned phrases":      true,
	"openings":            true,
	"free relatives":      true,
	"sentences":           true,
	"short test failures": true,
}

// Shares of free relatives in comment lines of product code, and of sentences of pages over words.LongSentence words.
const (
	maxFreeRelatives = 0.02
	maxLongSentences = 0.10
)

// wordRules return what is wrong with a report.
var wordRules = map[string]func(r *words.Report) []string{
	"banned phrases": each(words.BannedPhrase),
	"openings":       each(words.Opening),
	"free relatives": func(r *words.Report) []string {
		return atMost(maxFreeRelatives, r.FreeLines, r.CommentLines, "lines of comments have a free relative")
	},
	"sentences": func(r *words.Report) []string {
		longest := each(words.LongestRule)(r)
		long := len(r.Of(words.Sentence)) + len(longest)
		return append(longest, atMost(maxLongSentences, long, r.Sentences,
			fmt.Sprintf("sentences of pages have more than %d words", words.LongSentence))...)
	},
	"short test failures": each(words.ShortFailure),
}

// each returns a function that lists the findings of a rule.
func each(rule words.Rule) func(r *words.Report) []string {
	return func(r *words.Report) (out []string) {
		for _, f := range r.Of(rule) {
			out = append(out, f.String())
		}
		return out
	}
}

// atMost complains of a share above a limit.
func atMost(limit float64, part, whole int, what string) []string {
	if float64(part) <= limit*float64(whole) {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d %s, want at most %.0f %%", part, whole, what, 100*limit)}
}

// read is the report of the checkout, and the list of banned phrases that it was made with.
var read = sync.OnceValues(func() (*words.Report, *words.Banned) {
	banned, err := words.List()
	if err != nil {
		panic(err)
	}
	r, err := (&words.Checker{Product: product, Banned: banned}).Tree(".", ".")
	if err != nil {
		panic(err)
	}
	return r, banned
})

func TestWords(t *testing.T) {
	for rule, check := range wordRules {
		t.Run(rule, func(t *testing.T) {
			r, _ := read()
			problems := check(r)
			if !enforced[rule] {
				t.Logf("%d problems; not enforced yet", len(problems))
				return
			}
			for _, p := range problems {
				t.Error(p)
			}
		})
	}
}

// TestBannedExceptionsAreNeeded finds exceptions whose text is gone.
func TestBannedExceptionsAreNeeded(t *testing.T) {
	_, banned := read()
	for _, e := range banned.Exceptions() {
		if !e.Used {
			t.Errorf("banned.txt: %s does not have %q, remove the exception", e.Path, e.Phrase)
		}
	}
}

// TestWordRules has, for each rule, a text that passes and one that fails.
func TestWordRules(t *testing.T) {
	const long = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen " +
		"nineteen twenty one two three four five six. "
	for _, c := range []struct{ rule, path, good, bad string }{
		{"banned phrases", "a.md", "The API server reported an error.", "The agent was told of it."},
		{"openings", "a.go", "package a\n\n// F returns the time.\nfunc F() {}\n", "package a\n\n// F is when it runs.\nfunc F() {}\n"},
		{"free relatives", "a.go", "// Package a reads signals.\npackage a\n", "// Package a reads what the kernel has.\npackage a\n"},
		{"sentences", "a.md", long + "A. B. C. D. E. F. G. H. I.", long + "A. B. C. D. E. F. G. H."},
		{"sentences", "a.md", "A. B.", long[:len(long)-2] + " " + long + "A. B. C. D. E. F. G. H. I. J. K."},
		{"short test failures", "a_test.go", "package a\n\nfunc f() { t.Error(\"victim after the look is missing\") }\n",
			"package a\n\nfunc f() { t.Error(\"missing\") }\n"},
	} {
		for text, want := range map[string]int{c.good: 0, c.bad: 1} {
			banned, err := words.List()
			if err != nil {
				t.Fatal(err)
			}
			r := &words.Report{}
			if err := (&words.Checker{Product: product, Banned: banned}).File(r, c.path, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if got := wordRules[c.rule](r); len(got) != want {
				t.Errorf("%s: problems of %q = %q, want %d", c.rule, text, got, want)
			}
		}
	}
	for rule := range enforced {
		if wordRules[rule] == nil {
			t.Errorf("enforced has %q, which is no rule", rule)
		}
	}
}
