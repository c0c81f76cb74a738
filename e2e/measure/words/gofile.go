package words

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// goFile reads a Go file: its comments and, of product code, its texts, or the failures of a test.
func (c *Checker) goFile(r *Report, path string, text []byte) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	product := c.Product(path)
	for _, group := range file.Comments {
		p := comment(set, group)
		prose := p.prose()
		c.banned(r, path, prose, p.lineAt)
		if !product {
			continue
		}
		r.CommentLines += len(p.lines)
		var begun []int
		for _, at := range freeRelatives(prose) {
			line := p.lineAt(at[0])
			if !slices.Contains(begun, line) {
				begun = append(begun, line)
				r.add(path, line, FreeRelative, "%s", context(prose, at[0], at[1]))
			}
		}
		r.FreeLines += len(begun)
	}
	if product {
		openings(r, set, path, file)
	}
	c.literals(r, set, path, file, product)
	return nil
}

// directive is a comment for a tool.
var directive = regexp.MustCompile(`^//(?:[a-z]+:[a-z]|nolint|\+build|export |line )`)

// comment joins the lines of a comment.
func comment(set *token.FileSet, group *ast.CommentGroup) *passage {
	p := &passage{}
	for _, c := range group.List {
		if directive.MatchString(c.Text) {
			continue
		}
		n := set.Position(c.Pos()).Line
		body, block := strings.CutPrefix(c.Text, "/*")
		if block {
			body = strings.TrimSuffix(body, "*/")
		} else {
			body = strings.TrimPrefix(body, "//")
		}
		for line := range strings.Lines(body) {
			line = strings.TrimSpace(line)
			for _, key := range []string{"log:", "do:"} { // of docs/reference/logs.md
				line = strings.TrimPrefix(line, key)
			}
			if line != "" {
				p.add(n, line)
			}
			n++
		}
	}
	return p
}

// clause matches an opening that describes a thing by a clause, or gives it a voice.
var clause = regexp.MustCompile(`^(?:(?:A|An|The|Package|Command) )?\S+ (?:(?:is|are) (?:what|when|how|whether|who|where|why|that)\b|(?:tells|says|told|said)\b)`)

func openings(r *Report, set *token.FileSet, path string, file *ast.File) {
	check := func(doc *ast.CommentGroup) {
		if doc == nil {
			return
		}
		if m := clause.FindString(doc.Text()); m != "" {
			r.add(path, set.Position(doc.Pos()).Line, Opening, "%q", m)
		}
	}
	check(file.Doc)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			check(n.Doc)
		case *ast.GenDecl:
			check(n.Doc)
		case *ast.TypeSpec:
			check(n.Doc)
		case *ast.ValueSpec:
			check(n.Doc)
		case *ast.Field:
			check(n.Doc)
			check(n.Comment)
		}
		return true
	})
}

// joined returns the text of string literals that are added to each other; what else is added is %v.
func joined(e ast.Expr) (text string, literal bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, err := strconv.Unquote(e.Value)
			return s, err == nil
		}
	case *ast.ParenExpr:
		return joined(e.X)
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			a, x := joined(e.X)
			b, y := joined(e.Y)
			return a + b, x || y
		}
	}
	return "%v", false
}

// failures are methods of a test that report one.
var failures = []string{"Error", "Errorf", "Fatal", "Fatalf"}

// literals reads the texts of product code for banned phrases, and the failures of tests.
func (c *Checker) literals(r *Report, set *token.FileSet, path string, file *ast.File, product bool) {
	tags := map[ast.Node]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			tags[n.Tag] = n.Tag != nil
		case *ast.CallExpr:
			failure(r, set, path, n)
		case ast.Expr:
			text, ok := joined(n)
			if !ok {
				return true
			}
			if product && !tags[n] && strings.Contains(strings.TrimSpace(text), " ") {
				c.banned(r, path, flat(text), lineIn(set, n, text))
			}
			return false
		}
		return true
	})
}

// lineIn returns the line of an offset in a literal's text: in a raw string, its own.
func lineIn(set *token.FileSet, e ast.Expr, text string) func(offset int) int {
	line := set.Position(e.Pos()).Line
	lit, ok := e.(*ast.BasicLit)
	raw := ok && strings.HasPrefix(lit.Value, "`")
	return func(offset int) int {
		if !raw {
			return line
		}
		return line + strings.Count(text[:offset], "\n")
	}
}

// flat has a blank for each line break, and code in backticks blind.
func flat(text string) string {
	p := passage{}
	p.add(0, strings.ReplaceAll(text, "\n", " "))
	return p.prose()
}

// isTest reports whether an expression is named as tests name their testing.T.
func isTest(e ast.Expr) bool {
	name := ""
	switch e := e.(type) {
	case *ast.Ident:
		name = e.Name
	case *ast.SelectorExpr:
		name = e.Sel.Name
	}
	return slices.Contains([]string{"t", "b", "f", "tb", "T", "TB"}, name)
}

var (
	verb     = regexp.MustCompile(`%[-+# 0]*(?:\[\d+\])?[\d*]*(?:\.[\d*]*)?[a-zA-Z%]`)
	wordChar = regexp.MustCompile(`[\pL\d]`)
)

// failure adds a failure message of a test that does not name the thing checked.
func failure(r *Report, set *token.FileSet, path string, call *ast.CallExpr) {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(failures, s.Sel.Name) || !isTest(s.X) || len(call.Args) == 0 {
		return
	}
	text, literal := "", false
	args := call.Args
	if strings.HasSuffix(s.Sel.Name, "f") {
		args = args[:1]
	}
	for _, a := range args {
		part, ok := joined(a)
		literal = literal || ok
		text += " " + part
	}
	if literal && short(text) {
		r.add(path, set.Position(call.Pos()).Line, ShortFailure, "%q", strings.TrimSpace(text))
	}
}

// short reports whether a failure has less than MinFailure words. A failure with a subject and "want" may be shorter:
// "Parse(%q) = %v, want %v".
func short(text string) bool {
	n, want, subject := 0, false, false
	for w := range strings.FieldsSeq(verb.ReplaceAllString(text, " ")) {
		if !wordChar.MatchString(w) {
			continue
		}
		n++
		switch strings.ToLower(strings.Trim(w, ",.:;()")) {
		case "want", "wanted":
			want = true
		case "got", "is", "and", "not", "no":
		default:
			subject = true
		}
	}
	return n < MinFailure && !(want && subject)
}
