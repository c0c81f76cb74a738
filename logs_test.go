package jettison

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// generate writes the pages that are generated from the source ("make generate").
var generate = flag.Bool("generate", false, "write docs/reference/logs.md")

const logPage = "docs/reference/logs.md"

// strictLog requires a //log: comment for each message, and a //do: comment for each warning and error. Switch it on when the
// last package has them.
const strictLog = true

// variableMessages are the messages that are not constant yet, as "file: expression". Remove an entry with its call.
var variableMessages = []string{
	"cmd/jettison/runcommand.go: text",
}

// computedKeys are the messages whose keys are computed. Their //log: comments name the keys.
var computedKeys = []string{"allocatable resources"}

// levels are the methods that write a line to the log, the least severe first.
var levels = []string{"Debug", "Info", "Warn", "Error"}

// logPrograms are the programs whose log the page has, and the folders of their code.
var logPrograms = []struct {
	name, title string
	folders     []string
}{
	{"agent", "Agent", []string{"internal/agent/", "internal/node/", "internal/cli/", "cgroup/", "stats/", "cmd/jettison/"}},
	{"bridge", "jettison-bridge", []string{"internal/bridge/", "internal/kube/", "cmd/jettison-bridge/"}},
	{"cluster", "jettison-cluster", []string{"internal/cluster/", "internal/kube/", "cmd/jettison-cluster/", "cluster/"}},
}

// programsOf returns the programs that have a file.
func programsOf(file string) (out []string) {
	for _, p := range logPrograms {
		if slices.ContainsFunc(p.folders, func(folder string) bool { return strings.HasPrefix(file, folder) }) {
			out = append(out, p.name)
		}
	}
	return out
}

// logComment is the parsed comment above a call.
type logComment struct{ meaning, todo string }

// parseLogComment reads the lines of a comment: "//log: meaning" and "//do: what to do", each continued by lines that begin
// with "//" and two blanks.
func parseLogComment(group *ast.CommentGroup) (c logComment, err error) {
	var at *string
	for _, line := range group.List {
		text := line.Text
		switch {
		case strings.HasPrefix(text, "//log:"):
			at, text = &c.meaning, strings.TrimPrefix(text, "//log:")
		case strings.HasPrefix(text, "//do:"):
			at, text = &c.todo, strings.TrimPrefix(text, "//do:")
		case strings.HasPrefix(text, "//  ") && at != nil:
			text = strings.TrimPrefix(text, "//")
			*at += " " + strings.TrimSpace(text)
			continue
		default:
			at = nil
			continue
		}
		if *at != "" {
			return c, fmt.Errorf("two meanings in one comment")
		}
		if *at = strings.TrimSpace(text); *at == "" {
			return c, fmt.Errorf("//log: or //do: without a text")
		}
	}
	if c.todo != "" && c.meaning == "" {
		return c, fmt.Errorf("//do: without //log:")
	}
	for _, text := range []string{c.meaning, c.todo} {
		if text != "" && !strings.HasSuffix(text, ".") {
			return c, fmt.Errorf("%q does not end in a full stop", text)
		}
	}
	return c, nil
}

// logSite is a call that writes a line to the log.
type logSite struct {
	where, level, message string
	programs              []string
	kind                  string // of the event
	keys                  []string
	comment               logComment
}

// sources is the parsed product code.
type sources struct {
	set    *token.FileSet
	files  map[string]*ast.File           // by path
	consts map[string]map[string]ast.Expr // of each folder
	funcs  map[string][]*ast.FuncDecl     // that return an []any, by folder and name, and by name
	fields map[string][]*ast.FuncLit      // that do, by the field of a struct that they are given to

	sites    []logSite
	faults   []string
	variable []string // messages that are not constant
}

// readSources parses files, by path.
func readSources(texts map[string]string) (*sources, error) {
	s := &sources{set: token.NewFileSet(), files: map[string]*ast.File{}, consts: map[string]map[string]ast.Expr{},
		funcs: map[string][]*ast.FuncDecl{}, fields: map[string][]*ast.FuncLit{}}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		file, err := parser.ParseFile(s.set, name, texts[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.files[name] = file
		dir := path.Dir(name)
		if s.consts[dir] == nil {
			s.consts[dir] = map[string]ast.Expr{}
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					v, ok := spec.(*ast.ValueSpec)
					for i := 0; ok && d.Tok == token.CONST && i < min(len(v.Names), len(v.Values)); i++ {
						s.consts[dir][v.Names[i].Name] = v.Values[i]
					}
				}
			case *ast.FuncDecl:
				if d.Body != nil && returnsAttributes(d.Type) {
					s.funcs[dir+" "+d.Name.Name] = append(s.funcs[dir+" "+d.Name.Name], d)
					s.funcs[d.Name.Name] = append(s.funcs[d.Name.Name], d)
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if kv, ok := n.(*ast.KeyValueExpr); ok {
				name, isName := kv.Key.(*ast.Ident)
				if f, ok := kv.Value.(*ast.FuncLit); ok && isName && returnsAttributes(f.Type) {
					s.fields[name.Name] = append(s.fields[name.Name], f)
				}
			}
			return true
		})
	}
	return s, nil
}

// returnsAttributes reports whether the first result of a function is an []any.
func returnsAttributes(f *ast.FuncType) bool {
	return f.Results != nil && len(f.Results.List) > 0 && types.ExprString(f.Results.List[0].Type) == "[]any"
}

// importOf returns the folder of an imported package of this module.
func importOf(file *ast.File, name string) (dir string, ok bool) {
	for _, i := range file.Imports {
		full, err := strconv.Unquote(i.Path.Value)
		dir, own := strings.CutPrefix(full, "jettison/")
		if err == nil && own && (i.Name == nil && path.Base(dir) == name || i.Name != nil && i.Name.Name == name) {
			return dir, true
		}
	}
	return "", false
}

// constant returns the value of a text that is constant: literals, constants of this module, and their sums.
func (s *sources) constant(file *ast.File, dir string, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return text(e)
	case *ast.ParenExpr:
		return s.constant(file, dir, e.X)
	case *ast.BinaryExpr:
		a, x := s.constant(file, dir, e.X)
		b, y := s.constant(file, dir, e.Y)
		return a + b, x && y && e.Op == token.ADD
	case *ast.Ident:
		if v := s.consts[dir][e.Name]; v != nil {
			return s.constant(file, dir, v)
		}
	case *ast.SelectorExpr:
		if pkg, ok := e.X.(*ast.Ident); ok {
			if of, ok := importOf(file, pkg.Name); ok && s.consts[of][e.Sel.Name] != nil {
				return s.constant(file, of, s.consts[of][e.Sel.Name])
			}
		}
	}
	return "", false
}

// isLogger reports whether an expression is named as loggers are.
func isLogger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return slices.Contains([]string{"log", "logger", "slog"}, e.Name)
	case *ast.SelectorExpr:
		return slices.Contains([]string{"log", "Log", "logger", "Logger"}, e.Sel.Name)
	case *ast.CallExpr: // slog.New(...), log.With(...)
		f, ok := e.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains([]string{"New", "With", "WithGroup"}, f.Sel.Name) && isLogger(f.X)
	}
	return false
}

// logCall returns the level, the message and the attributes of a call that writes a line to the log.
func logCall(c *ast.CallExpr) (level string, message ast.Expr, args []ast.Expr, ok bool) {
	f, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || !isLogger(f.X) || len(c.Args) == 0 {
		return "", nil, nil, false
	}
	name, context := strings.CutSuffix(f.Sel.Name, "Context")
	switch {
	case slices.Contains(levels, name) && !context:
		return name, c.Args[0], c.Args[1:], true
	case slices.Contains(levels, name) && len(c.Args) > 1:
		return name, c.Args[1], c.Args[2:], true
	case (f.Sel.Name == "Log" || f.Sel.Name == "LogAttrs") && len(c.Args) > 2:
		if l, ok := c.Args[1].(*ast.SelectorExpr); ok {
			level = strings.TrimPrefix(l.Sel.Name, "Level")
		}
		return level, c.Args[2], c.Args[3:], true
	}
	return "", nil, nil, false
}

// kindOf returns the kind of event that an attribute names: api.EventPod.Attr().
func (s *sources) kindOf(file *ast.File, dir string, e ast.Expr) (string, bool) {
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	f, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Attr" {
		return "", false
	}
	return s.constant(file, dir, f.X)
}

// attrs collects the keys and the kind of event of attributes.
type attrs struct {
	s       *sources
	keys    map[string]bool
	kind    string
	visited map[any]bool // names and functions that were followed
}

// list reads attributes as they are passed. fn is the function around them.
func (a *attrs) list(file *ast.File, dir string, fn *ast.FuncDecl, args []ast.Expr, spread bool) {
	for i := 0; i < len(args); i++ {
		if kind, ok := a.s.kindOf(file, dir, args[i]); ok {
			a.kind = kind
			continue
		}
		if spread && i == len(args)-1 {
			a.value(file, dir, fn, args[i])
			return
		}
		if key, ok := a.s.constant(file, dir, args[i]); ok {
			a.keys[key] = true
			i++ // its value
		} else if c, ok := args[i].(*ast.CallExpr); ok && len(c.Args) == 2 { // slog.String("key", value)
			if key, ok := a.s.constant(file, dir, c.Args[0]); ok {
				a.keys[key] = true
			}
		}
	}
}

// value reads an expression that is a list of attributes.
func (a *attrs) value(file *ast.File, dir string, fn *ast.FuncDecl, e ast.Expr) {
	switch e := e.(type) {
	case *ast.CompositeLit:
		if attributes(e) {
			a.list(file, dir, fn, e.Elts, false)
		}
	case *ast.CallExpr:
		switch f := e.Fun.(type) {
		case *ast.Ident:
			if f.Name == "append" && len(e.Args) > 0 {
				a.value(file, dir, fn, e.Args[0])
				a.list(file, dir, fn, e.Args[1:], e.Ellipsis.IsValid())
				return
			}
			a.returned(a.s.funcs[dir+" "+f.Name])
			a.passed(file, dir, fn, e, a.s.funcs[dir+" "+f.Name])
		case *ast.SelectorExpr:
			if f.Sel.Name == "Concat" {
				for _, part := range e.Args {
					a.value(file, dir, fn, part)
				}
				return
			}
			found := a.s.funcs[dir+" "+f.Sel.Name]
			if pkg, ok := f.X.(*ast.Ident); ok {
				if of, ok := importOf(file, pkg.Name); ok {
					found = a.s.funcs[of+" "+f.Sel.Name]
				}
			}
			for _, lit := range a.s.fields[f.Sel.Name] {
				if found == nil {
					a.results(file, dir, fn, lit.Body)
				}
			}
			if found == nil && a.s.fields[f.Sel.Name] == nil {
				found = a.s.funcs[f.Sel.Name]
			}
			a.returned(found)
			a.passed(file, dir, fn, e, found)
		}
	case *ast.Ident:
		if fn == nil || a.visited[fn.Name.Name+" "+e.Name] {
			return
		}
		a.visited[fn.Name.Name+" "+e.Name] = true
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			if s, ok := n.(*ast.AssignStmt); ok {
				for i, to := range s.Lhs {
					if name, ok := to.(*ast.Ident); ok && name.Name == e.Name && i < len(s.Rhs) {
						a.value(file, dir, fn, s.Rhs[i])
					}
				}
			}
			return true
		})
	}
}

// returned reads what functions return.
func (a *attrs) returned(funcs []*ast.FuncDecl) {
	for _, fn := range funcs {
		if a.visited[fn] {
			continue
		}
		a.visited[fn] = true
		name := a.s.set.Position(fn.Pos()).Filename
		file, dir := a.s.files[name], path.Dir(name)
		if results := fn.Type.Results.List; len(results) > 0 && len(results[0].Names) > 0 {
			a.value(file, dir, fn, results[0].Names[0])
		}
		a.results(file, dir, fn, fn.Body)
	}
}

// results reads the return statements of a body.
func (a *attrs) results(file *ast.File, dir string, fn *ast.FuncDecl, body *ast.BlockStmt) {
	ast.Inspect(body, func(n ast.Node) bool {
		if r, ok := n.(*ast.ReturnStmt); ok {
			for _, e := range r.Results {
				a.value(file, dir, fn, e)
			}
		}
		return true
	})
}

// passed reads the attributes that a call passes to the variadic parameter of functions.
func (a *attrs) passed(file *ast.File, dir string, fn *ast.FuncDecl, c *ast.CallExpr, funcs []*ast.FuncDecl) {
	for _, f := range funcs {
		params := f.Type.Params
		fixed := params.NumFields() - 1
		if fixed < 0 || len(c.Args) <= fixed {
			continue
		}
		if e, ok := params.List[len(params.List)-1].Type.(*ast.Ellipsis); ok && types.ExprString(e.Elt) == "any" {
			a.list(file, dir, fn, c.Args[fixed:], c.Ellipsis.IsValid())
		}
	}
}

// findLog collects the calls that write lines to the log.
func (s *sources) findLog() {
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		file := s.files[name]
		above := map[int]*ast.CommentGroup{} // by the line after it
		unused := map[*ast.CommentGroup]bool{}
		for _, group := range file.Comments {
			above[s.set.Position(group.End()).Line+1] = group
			unused[group] = slices.ContainsFunc(group.List, func(c *ast.Comment) bool {
				return strings.HasPrefix(c.Text, "//log:") || strings.HasPrefix(c.Text, "//do:")
			})
		}
		var stack []ast.Node
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				stack = stack[:len(stack)-1]
				return true
			}
			stack = append(stack, n)
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			level, message, args, ok := logCall(c)
			if !ok {
				return true
			}
			s.call(file, name, stack, level, message, args, c.Ellipsis.IsValid(), func(line int) (logComment, bool) {
				group := above[line]
				if group == nil || !unused[group] {
					return logComment{}, false
				}
				comment, err := parseLogComment(group)
				if err != nil {
					s.fault(group, "%v", err)
				}
				delete(unused, group)
				return comment, true
			})
			return true
		})
		for group, unused := range unused {
			if unused {
				s.fault(group, "//log: does not stand immediately above a call that writes to the log")
			}
		}
	}
}

func (s *sources) fault(at ast.Node, format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf("%s: %s", s.set.Position(at.Pos()), fmt.Sprintf(format, args...)))
}

// call adds one call. The last node of the stack is it.
func (s *sources) call(file *ast.File, name string, stack []ast.Node, level string, message ast.Expr, args []ast.Expr,
	spread bool, comment func(line int) (logComment, bool)) {
	c, dir := stack[len(stack)-1], path.Dir(name)
	site := logSite{where: s.set.Position(c.Pos()).String(), level: level, programs: programsOf(name)}
	if len(site.programs) == 0 {
		s.fault(c, "no program of logPrograms has this folder")
	}
	var ok bool
	if site.message, ok = s.constant(file, dir, message); !ok {
		s.variable = append(s.variable, name+": "+types.ExprString(message))
		return
	}
	if !slices.Contains(levels, level) {
		s.fault(c, "the level is not constant")
		return
	}
	var fn *ast.FuncDecl
	for _, n := range stack {
		if f, ok := n.(*ast.FuncDecl); ok {
			fn = f
		}
	}
	a := &attrs{s: s, keys: map[string]bool{}, visited: map[any]bool{}}
	a.list(file, dir, fn, args, spread)
	site.keys, site.kind = slices.Sorted(maps.Keys(a.keys)), cmp.Or(a.kind, "agent")
	if spread && len(site.keys) == 0 && !slices.Contains(computedKeys, site.message) {
		s.fault(c, "no key of %s is found", types.ExprString(args[len(args)-1]))
	}
	for _, n := range statements(stack) {
		if text, ok := comment(s.set.Position(n.Pos()).Line); ok {
			site.comment = text
			break
		}
	}
	s.sites = append(s.sites, site)
}

// statements returns the statement that the last node of a stack is in; of a call in a function literal that is an argument,
// also the statement that has the literal.
func statements(stack []ast.Node) (out []ast.Stmt) {
	for i := len(stack) - 1; i > 0; i-- {
		stmt, ok := stack[i].(ast.Stmt)
		if !ok {
			if _, ok := stack[i].(*ast.FuncDecl); ok {
				return out
			}
			continue
		}
		out = append(out, stmt)
		// the block of a literal, the literal, and a call around it
		if i < 3 {
			return out
		}
		_, block := stack[i-1].(*ast.BlockStmt)
		_, literal := stack[i-2].(*ast.FuncLit)
		_, argument := stack[i-3].(*ast.CallExpr)
		if !block || !literal || !argument {
			return out
		}
		i -= 2
	}
	return out
}

// logLine is a message of one program.
type logLine struct {
	message       string
	levels, kinds []string
	keys          []string
	comment       logComment
	where         string
	severe        bool
}

// logLines joins the calls of a program that have the same message.
func (s *sources) logLines(program string) []*logLine {
	byMessage := map[string]*logLine{}
	for _, site := range s.sites {
		if !slices.Contains(site.programs, program) {
			continue
		}
		l := byMessage[site.message]
		if l == nil {
			l = &logLine{message: site.message, where: site.where}
			byMessage[site.message] = l
		}
		switch {
		case l.comment == logComment{}:
			l.comment = site.comment
		case site.comment != logComment{} && site.comment != l.comment:
			s.faults = append(s.faults, fmt.Sprintf("%s: the comment of %q is another than at %s", site.where, site.message, l.where))
		}
		l.levels, l.kinds, l.keys = append(l.levels, site.level), append(l.kinds, site.kind), append(l.keys, site.keys...)
		l.severe = l.severe || site.level == "Warn" || site.level == "Error"
	}
	var out []*logLine
	for _, message := range slices.SortedFunc(maps.Keys(byMessage), func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.ToLower(a), strings.ToLower(b)), cmp.Compare(a, b))
	}) {
		l := byMessage[message]
		for _, list := range []*[]string{&l.kinds, &l.keys} {
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
		slices.SortFunc(l.levels, func(a, b string) int { return slices.Index(levels, a) - slices.Index(levels, b) })
		l.levels = slices.Compact(l.levels)
		out = append(out, l)
	}
	return out
}

// section returns the hand-written text of a page between its markers, which are part of it.
func section(page, name string) (string, bool) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	from, to := strings.Index(page, begin), strings.Index(page, end)
	if from < 0 || to < from {
		return "", false
	}
	return page[from : to+len(end)], true
}

// logPageOf makes the page of the calls and of the hand-written sections of the present one.
func (s *sources) logPageOf(present string) (string, error) {
	introduction, ok := section(present, "introduction")
	keys, has := section(present, "keys")
	if !ok || !has {
		return "", fmt.Errorf("%s has no section between <!-- begin introduction --> and <!-- end introduction -->, or none for keys",
			logPage)
	}
	var b strings.Builder
	b.WriteString("# Log messages\n\n<!-- \"make generate\" writes this page: the tables of messages from the //log: and //do: comments above the calls. " +
		"Edit by hand only between the markers. -->\n\n" + introduction)
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
	code := func(texts []string) string {
		var out []string
		for _, t := range texts {
			out = append(out, "`"+cell(t)+"`")
		}
		return strings.Join(out, ", ")
	}
	for _, p := range logPrograms {
		kind, bar := "", ""
		if p.name == "agent" {
			kind, bar = " event |", "---|"
		}
		fmt.Fprintf(&b, "\n## %s\n\n| message | level |%s keys | meaning | what to do |\n|---|---|%s---|---|---|\n", p.title, kind, bar)
		for _, l := range s.logLines(p.name) {
			if p.name == "agent" {
				kind = " " + strings.Join(l.kinds, ", ") + " |"
			}
			fmt.Fprintf(&b, "| %s | %s |%s %s | %s | %s |\n", code([]string{l.message}), strings.ToLower(strings.Join(l.levels, ", ")), kind,
				code(l.keys), cell(l.comment.meaning), cell(l.comment.todo))
		}
	}
	b.WriteString("\n" + keys)
	return b.String(), nil
}

// productSources parses the product code of the checkout.
func productSources(t *testing.T) *sources {
	t.Helper()
	texts := map[string]string{}
	for _, name := range goFiles(t) {
		if !product(name) || strings.HasPrefix(name, "deploy") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.ToSlash(name)] = string(text)
	}
	s, err := readSources(texts)
	if err != nil {
		t.Fatal(err)
	}
	s.findLog()
	return s
}

// TestTheLogPageIsFresh compares docs/reference/logs.md with the source, and the calls with the rules of their comments.
func TestTheLogPageIsFresh(t *testing.T) {
	s := productSources(t)
	present, err := os.ReadFile(logPage)
	if err != nil {
		t.Fatal(err)
	}
	want, err := s.logPageOf(string(present))
	if err != nil {
		t.Fatal(err)
	}
	if *generate {
		if err := os.WriteFile(logPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(present) != want {
		t.Errorf("%s is stale: run \"make generate\"", logPage)
	}
	missing := 0
	for _, p := range logPrograms {
		for _, l := range s.logLines(p.name) {
			switch {
			case l.comment.meaning == "":
				missing++
				if strictLog {
					t.Errorf("%s: the message %q has no //log: comment above its call", l.where, l.message)
				}
			case l.comment.todo == "" && l.severe:
				missing++
				if strictLog {
					t.Errorf("%s: the message %q is a warning or an error and has no //do: comment", l.where, l.message)
				}
			}
		}
	}
	slices.Sort(s.faults)
	for _, fault := range slices.Compact(s.faults) {
		t.Error(fault)
	}
	for _, message := range s.variable {
		if !slices.Contains(variableMessages, message) {
			t.Errorf("%s: the message is not constant: put details into keys", message)
		}
	}
	for _, entry := range variableMessages {
		if !slices.Contains(s.variable, entry) {
			t.Logf("variableMessages has %s, which is in no file: remove it", entry)
		}
	}
	t.Logf("%d calls; %d messages without //log: or //do:; %d messages that are not constant", len(s.sites), missing, len(s.variable))
}

// sampleLog has calls with and without comments.
var sampleLog = map[string]string{
	"api/event.go": "package api\n\nconst (\n\tEventPod EventKind = \"pod\"\n\tMessageLost = \"records \" + lost\n\tlost = \"lost\"\n)\n",
	"internal/agent/a.go": `package agent

import "jettison/api"

func (x *y) fields(more ...any) []any {
	out := []any{"pod", x.pod}
	return append(out, more...)
}

func (x *y) run() {
	//log: The API server is
	//  down | slow.
	//do: Check the server
	//  and the network.
	x.o.Log.Warn("API server unreachable", append(x.fields("reason", 1), "after", x.since)...)
	//log: Records were lost.
	x.log.Repeat("key", func() {
		x.log.Info(api.MessageLost, api.EventPod.Attr(), "record", 1)
	})
	x.log.Repeat("key", func() {
		//log: A pod was listed.
		x.log.Info("pod " +
			"listed", "pods", 1)
	})
	if x.bad {
		x.log.Error("API server unreachable", "error", x.err)
		http.Error(w, "no line of the log")
	}
	x.log.Log(ctx, slog.LevelDebug, "quiet")
}
`,
}

// TestLogCallsAreFound reads a sample, and makes its page.
func TestLogCallsAreFound(t *testing.T) {
	s, err := readSources(sampleLog)
	if err != nil {
		t.Fatal(err)
	}
	s.findLog()
	page, err := s.logPageOf("<!-- begin introduction -->\nHello.\n<!-- end introduction -->\nold\n<!-- begin keys -->\n<!-- end keys -->\n")
	if err != nil {
		t.Fatal(err)
	}
	const table = "|---|---|---|---|---|---|\n"
	_, got, _ := strings.Cut(page, table)
	got, _, _ = strings.Cut(got, "\n\n")
	want := "| `API server unreachable` | warn, error | agent | `after`, `error`, `pod`, `reason` | The API server is down \\| slow. " +
		"| Check the server and the network. |\n" +
		"| `pod listed` | info | agent | `pods` | A pod was listed. |  |\n" +
		"| `quiet` | debug | agent |  |  |  |\n" +
		"| `records lost` | info | pod | `record` | Records were lost. |  |"
	if got != want || len(s.faults) > 0 || len(s.variable) > 0 {
		t.Errorf("table of the sample:\n%s\nwant:\n%s\nfaults %q, variable messages %q", got, want, s.faults, s.variable)
	}
	if !strings.Contains(page, "Hello.") || strings.Contains(page, "old") {
		t.Errorf("page does not keep the text between its markers alone:\n%s", page)
	}
}

// TestLogFaultsAreFound has a call in each body that must not pass.
func TestLogFaultsAreFound(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"log.Info(text)", "variable"},
		{"log.Info(\"pod \" + name)", "variable"},
		{"log.Log(ctx, level, \"pod listed\")", "the level is not constant"},
		{"//log: A pod.\n\tx := 1", "does not stand immediately above"},
		{"//log: A pod.\n\n\tlog.Info(\"pod\")", "does not stand immediately above"},
		{"log.Info(\"pod listed\", keys...)", "no key of keys"},
		{"//do: Nothing.\n\tlog.Info(\"pod\")", "//do: without //log:"},
		{"//log: A pod\n\tlog.Info(\"pod\")", "full stop"},
		{"//log:\n\tlog.Info(\"pod\")", "without a text"},
		{"//log: A pod.\n\tlog.Info(\"pod\")\n\t//log: Another.\n\tlog.Info(\"pod\")", "is another than"},
	} {
		s, err := readSources(map[string]string{"internal/agent/a.go": "package a\n\nfunc f() {\n\t" + c.body + "\n}\n"})
		if err != nil {
			t.Fatal(err)
		}
		s.findLog()
		s.logLines("agent")
		got := strings.Join(s.faults, "\n")
		if len(s.variable) > 0 {
			got += "variable"
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("faults of %q = %q, want %q", c.body, got, c.want)
		}
	}
}

// eventKind is api.LogKind.
const eventKind = "eventKind"

// logged are the keys of the log that the code has, each with where it is first.
type logged map[string]string

func (l logged) pairs(where string, args []ast.Expr) {
	// api.EventKind.Attr() is a key with its value
	args = slices.DeleteFunc(slices.Clone(args), func(e ast.Expr) bool {
		c, ok := e.(*ast.CallExpr)
		if !ok {
			return false
		}
		s, ok := c.Fun.(*ast.SelectorExpr)
		if ok = ok && s.Sel.Name == "Attr"; ok && l[eventKind] == "" {
			l[eventKind] = where
		}
		return ok
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

// TestLogKeysAreDocumented compares the table of keys in docs/reference/logs.md with the code.
func TestLogKeysAreDocumented(t *testing.T) {
	page, err := os.ReadFile(logPage)
	if err != nil {
		t.Fatal(err)
	}
	keys, ok := section(string(page), "keys")
	if !ok {
		t.Fatalf("%s has no section of keys between its markers", logPage)
	}
	said := inTheLog(t)
	var listed []string
	for _, m := range row.FindAllStringSubmatch(keys, -1) {
		listed = append(listed, m[1])
		if said[m[1]] == "" {
			t.Errorf("%s has the key %q, which no line of the log has", logPage, m[1])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(said)) {
		if !slices.Contains(listed, key) {
			t.Errorf("%s: the log's key %q is not in %s", said[key], key, logPage)
		}
	}
	if len(said) < 50 || !slices.IsSorted(listed) {
		t.Errorf("%d keys in the code; those of %s are to be sorted", len(said), logPage)
	}
}
