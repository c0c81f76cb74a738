package jettison

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// levels are the methods that write a line to the log.
var levels = []string{"Debug", "Info", "Warn", "Error"}

// logged are the keys of the log that the code has, each with where it is first.
type logged map[string]string

func (l logged) pairs(where string, args []ast.Expr) {
	// api.EventKind.Attr() stands for a pair of its own
	args = slices.DeleteFunc(slices.Clone(args), func(e ast.Expr) bool {
		c, ok := e.(*ast.CallExpr)
		if !ok {
			return false
		}
		s, ok := c.Fun.(*ast.SelectorExpr)
		return ok && s.Sel.Name == "Attr"
	})
	for i := 0; i+1 < len(args); i += 2 {
		if key, ok := text(args[i]); ok && l[key] == "" {
			l[key] = where
		}
	}
}

// text is a literal's.
func text(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// fieldsOf reports whether an expression is a list of attributes: []any{...}, or one that is called so.
func fieldsOf(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "fields" || e.Name == "out"
	case *ast.CallExpr:
		switch f := e.Fun.(type) {
		case *ast.Ident:
			return f.Name == "append" && len(e.Args) > 0 && fieldsOf(e.Args[0])
		case *ast.SelectorExpr:
			return strings.HasSuffix(strings.ToLower(f.Sel.Name), "fields")
		}
	case *ast.CompositeLit:
		return attributes(e)
	}
	return false
}

// attributes reports whether a literal is an []any.
func attributes(c *ast.CompositeLit) bool {
	array, ok := c.Type.(*ast.ArrayType)
	if !ok || array.Len != nil {
		return false
	}
	elements, ok := array.Elt.(*ast.Ident)
	return ok && elements.Name == "any"
}

func (l logged) call(where string, c *ast.CallExpr) {
	if f, ok := c.Fun.(*ast.Ident); ok && f.Name == "append" && len(c.Args) > 2 && !c.Ellipsis.IsValid() && fieldsOf(c.Args[0]) {
		l.pairs(where, c.Args[1:])
		return
	}
	f, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || len(c.Args) == 0 || !slices.Contains(levels, f.Sel.Name) {
		return
	}
	_, message := text(c.Args[0])
	if s, ok := c.Args[0].(*ast.SelectorExpr); ok {
		message = message || strings.HasPrefix(s.Sel.Name, "Message") // one of package api's
	}
	if _, concatenated := c.Args[0].(*ast.BinaryExpr); !message && !concatenated {
		return // no line of the log
	}
	l.pairs(where, c.Args[1:])
}

// inTheLog are the keys of all product code.
func inTheLog(t *testing.T) logged {
	l := logged{}
	for _, path := range goFiles(t) {
		if !product(path) || strings.HasPrefix(path, "deploy") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		logs := slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
			return i.Path.Value == `"log/slog"` || i.Path.Value == `"jettison/internal/base/logthrottle"`
		})
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				l.call(set.Position(n.Pos()).String(), n)
			case *ast.CompositeLit:
				if attributes(n) && (logs || strings.Contains(path, "evictions")) {
					l.pairs(set.Position(n.Pos()).String(), n.Elts)
				}
			}
			return true
		})
	}
	return l
}

// row is the first cell of a line of a table, a text in code.
var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// Every key of the log is in docs/reference/logs.md, and what is there is in the code: who reads logs by program goes by it.
func TestTheLogIsDocumented(t *testing.T) {
	const path = "docs/reference/logs.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	said := inTheLog(t)
	var listed []string
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, m[1])
		if said[m[1]] == "" {
			t.Errorf("%s has the key %q, which no line of the log has", path, m[1])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(said)) {
		if !slices.Contains(listed, key) {
			t.Errorf("%s: the log's key %q is not in %s", said[key], key, path)
		}
	}
	if len(said) < 50 || !slices.IsSorted(listed) {
		t.Errorf("%d keys in the code; those of %s are to be sorted", len(said), path)
	}
}
