package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"slices"
	"strings"
)

// copyRows finds small things that are written several times, by what they look like:
//
//	saturating add       a function with two parameters of one integer type, or of a type
//	                     parameter that stands for integers, and one result, that mentions
//	                     math.Max* - x, or mentions math.Max* and adds its parameters
//	strict decoder       a package that calls KnownFields, DisallowUnknownFields,
//	                     RejectUnknownMembers or UnmarshalStrict
//	bad field error      a struct type with a method Error and a field named Field, in any case
//	retry loop           a for loop that waits, by a timer, a ticker or a function named as a
//	                     wait, and that doubles a delay or compares err with nil
//	close with deadline  a function or method named close, end, ends or waits, in any case,
//	                     with a select one of whose cases is a timer
//	race flag            a pair of files race_on and race_off, tests included
func copyRows(t *tree) []row {
	return []row{
		count("copies: saturating add", saturatingAdds(t)),
		count("copies: strict decoders", strictDecoders(t)),
		count("copies: bad field error types", fieldErrors(t)),
		count("copies: retry loops", retryLoops(t)),
		count("copies: close with deadline", closings(t)),
		count("copies: race_on and race_off files", raceFlags(t)),
	}
}

// has reports whether a node or one below it matches. Function literals are left out where whole is
// false.
func has(n ast.Node, whole bool, match func(ast.Node) bool) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if _, literal := n.(*ast.FuncLit); literal && !whole {
			return false
		}
		found = found || n != nil && match(n)
		return !found
	})
	return found
}

// called returns the name of the function that a node calls, without what it belongs to.
func called(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// isMax matches math.Max...
func isMax(n ast.Node) bool {
	of, ok := n.(*ast.SelectorExpr)
	return ok && typeName(of.X) == "math" && strings.HasPrefix(of.Sel.Name, "Max")
}

// isMaxLess matches math.Max... - x.
func isMaxLess(n ast.Node) bool {
	less, ok := n.(*ast.BinaryExpr)
	return ok && less.Op == token.SUB && isMax(less.X)
}

// isSum matches a + b of two names.
func isSum(a, b string) func(ast.Node) bool {
	return func(n ast.Node) bool {
		sum, ok := n.(*ast.BinaryExpr)
		return ok && sum.Op == token.ADD && types.ExprString(sum.X) == a &&
			types.ExprString(sum.Y) == b
	}
}

var integer = regexp.MustCompile(`^(u?int(32|64)?|time\.Duration)$`)

// isInteger reports whether a parameter's type is an integer type, or a type parameter of the
// function with no other use.
func isInteger(d *ast.FuncDecl, kind ast.Expr) bool {
	text := types.ExprString(kind)
	if d.Type.TypeParams != nil {
		for _, field := range d.Type.TypeParams.List {
			if slices.ContainsFunc(field.Names, func(n *ast.Ident) bool { return n.Name == text }) {
				text = types.ExprString(field.Type)
			}
		}
	}
	for one := range strings.SplitSeq(text, "|") {
		if !integer.MatchString(strings.Trim(one, " ~")) {
			return false
		}
	}
	return true
}

// addends returns the names of a function's parameters if there are two, of one integer type.
func addends(d *ast.FuncDecl) (names []string, ok bool) {
	kinds := map[string]bool{}
	for _, field := range d.Type.Params.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
		kinds[types.ExprString(field.Type)] = true
	}
	return names, len(names) == 2 && len(kinds) == 1 && isInteger(d, d.Type.Params.List[0].Type)
}

func saturatingAdds(t *tree) (out []string) {
	t.funcs(func(_ *file, d *ast.FuncDecl) {
		names, ok := addends(d)
		if !ok || d.Type.Results.NumFields() != 1 || d.Body == nil {
			return
		}
		adds := has(d.Body, false, isMax) && has(d.Body, false, isSum(names[0], names[1]))
		if adds || has(d.Body, false, isMaxLess) {
			out = append(out, t.at(d)+" "+d.Name.Name)
		}
	})
	return out
}

var strict = []string{"KnownFields", "DisallowUnknownFields", "RejectUnknownMembers", "UnmarshalStrict"}

func strictDecoders(t *tree) (out []string) {
	for _, f := range t.product {
		isStrict := func(n ast.Node) bool { return slices.Contains(strict, called(n)) }
		if has(f.ast, true, isStrict) && !slices.Contains(out, f.dir) {
			out = append(out, f.dir)
		}
	}
	return out
}

func fieldErrors(t *tree) (out []string) {
	errs := map[string]bool{}
	t.funcs(func(f *file, d *ast.FuncDecl) {
		if of := receiver(d); of != "" && d.Name.Name == "Error" && len(d.Type.Params.List) == 0 {
			errs[f.dir+" "+of] = true
		}
	})
	t.structs(func(f *file, name string, s *ast.StructType) {
		named := slices.ContainsFunc(s.Fields.List, func(field *ast.Field) bool {
			return slices.ContainsFunc(field.Names, func(n *ast.Ident) bool {
				return strings.EqualFold(n.Name, "Field")
			})
		})
		if named && errs[f.dir+" "+name] {
			out = append(out, t.at(s)+" "+name)
		}
	})
	return out
}

// waitName matches functions that wait for time to pass.
var waitName = regexp.MustCompile(`(?i)^(sleep|pause|rest|waitFor|After|Sleep)$`)

// waits matches a receive from a timer, a ticker or time.After, and a call of a function named as a
// wait.
func waits(n ast.Node) bool {
	if receive, ok := n.(*ast.UnaryExpr); ok && receive.Op == token.ARROW {
		if of, ok := receive.X.(*ast.SelectorExpr); ok {
			return of.Sel.Name == "C"
		}
		return called(receive.X) == "After" || called(receive.X) == "C"
	}
	call, ok := n.(*ast.CallExpr)
	if !ok || !waitName.MatchString(called(n)) {
		return false
	}
	of, isMethod := call.Fun.(*ast.SelectorExpr)
	return !isMethod || of.Sel.Name != "After" || typeName(of.X) == "time"
}

// doubles matches x *= 2, x <<= 1 and an assignment with 2*x in it.
func doubles(n ast.Node) bool {
	assign, ok := n.(*ast.AssignStmt)
	if !ok {
		return false
	}
	if assign.Tok == token.MUL_ASSIGN || assign.Tok == token.SHL_ASSIGN {
		return true
	}
	return slices.ContainsFunc(assign.Rhs, func(e ast.Expr) bool {
		return has(e, false, func(n ast.Node) bool {
			b, ok := n.(*ast.BinaryExpr)
			return ok && b.Op == token.MUL && types.ExprString(b.X) == "2"
		})
	})
}

// fails matches a comparison of an error with nil.
func fails(n ast.Node) bool {
	b, ok := n.(*ast.BinaryExpr)
	return ok && (b.Op == token.NEQ || b.Op == token.EQL) && typeName(b.X) == "err" && typeName(b.Y) == "nil"
}

func retryLoops(t *tree) (out []string) {
	for _, f := range t.product {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			loop, ok := n.(*ast.ForStmt)
			if ok && has(loop.Body, false, waits) && (has(loop, false, doubles) || has(loop, false, fails)) {
				out = append(out, t.at(loop))
			}
			return true
		})
	}
	return out
}

// endName matches functions that end something.
var endName = regexp.MustCompile(`(?i)^(close|ends?|waits)$`)

func closings(t *tree) (out []string) {
	t.funcs(func(_ *file, d *ast.FuncDecl) {
		if d.Body == nil || !endName.MatchString(d.Name.Name) {
			return
		}
		if has(d.Body, true, func(n ast.Node) bool {
			s, isSelect := n.(*ast.SelectStmt)
			return isSelect && slices.ContainsFunc(s.Body.List, func(c ast.Stmt) bool {
				comm := c.(*ast.CommClause).Comm
				return comm != nil && has(comm, false, waits)
			})
		}) {
			out = append(out, t.at(d)+" "+d.Name.Name)
		}
	})
	return out
}

func raceFlags(t *tree) (out []string) {
	for _, name := range t.all {
		if strings.HasPrefix(path.Base(name), "race_on") {
			out = append(out, name)
		}
	}
	return out
}
