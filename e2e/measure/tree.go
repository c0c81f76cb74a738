package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"jettison/e2e/measure/words"
)

// file is one Go file.
type file struct {
	path  string // below the tree, with slashes
	dir   string
	lines []string
	ast   *ast.File
}

// tree is the Go files of one commit.
type tree struct {
	fset    *token.FileSet
	module  string
	product []*file
	all     []string // paths of all Go files, tests included
	words   *words.Report
}

// at returns the place of a node as path:line.
func (t *tree) at(n ast.Node) string {
	p := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// isProduct reports whether a file is shipped, as product in rules_test.go does.
func isProduct(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	helper := strings.Contains(name, "critest") || strings.Contains(name, "nodetest") ||
		strings.Contains(name, "seqtest")
	return first != "e2e" && !strings.HasSuffix(name, "_test.go") && !helper
}

// readTree parses the product's Go files below a folder, and reads its texts. Hidden folders are skipped.
func readTree(dir string) (*tree, error) {
	t := &tree{fset: token.NewFileSet(), module: "jettison"}
	err := filepath.WalkDir(dir, func(full string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && full != dir && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(full, ".go"):
			return nil
		}
		below, err := filepath.Rel(dir, full)
		if err != nil {
			return err
		}
		return t.add(filepath.ToSlash(below), full)
	})
	if err != nil {
		return nil, err
	}
	t.words, err = readWords(dir, ".")
	return t, err
}

func (t *tree) add(name, full string) error {
	t.all = append(t.all, name)
	if !isProduct(name) {
		return nil
	}
	text, err := os.ReadFile(full)
	if err != nil {
		return err
	}
	parsed, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	t.product = append(t.product, &file{path: name, dir: path.Dir(name), lines: lines, ast: parsed})
	return nil
}

// funcs calls visit for each function and method of the product.
func (t *tree) funcs(visit func(f *file, d *ast.FuncDecl)) {
	for _, f := range t.product {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				visit(f, fn)
			}
		}
	}
}

// receiver returns the name of a method's type; empty: d is no method.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	return typeName(d.Recv.List[0].Type)
}

// typeName returns the name of a type without pointer, package and type arguments.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// extract writes the Go files and pages of a commit into a temporary folder, which the caller removes.
func extract(repository, commit string) (dir string, err error) {
	cmd := exec.Command("git", "-C", repository, "archive", "--format=tar", commit)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	archive, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	if dir, err = os.MkdirTemp("", "measure"); err != nil {
		return "", err
	}
	if err := unpack(tar.NewReader(bytes.NewReader(archive)), dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

func unpack(from *tar.Reader, dir string) error {
	for {
		h, err := from.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case h.Typeflag != tar.TypeReg || path.Ext(h.Name) != ".go" && path.Ext(h.Name) != ".md" ||
			!filepath.IsLocal(h.Name):
			continue
		}
		text, err := io.ReadAll(from)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return err
		}
	}
}
