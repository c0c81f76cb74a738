package main

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
)

// structs calls visit for each struct type of the product that is declared at the top of a file.
func (t *tree) structs(visit func(f *file, name string, s *ast.StructType)) {
	for _, f := range t.product {
		for _, d := range f.ast.Decls {
			general, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range general.Specs {
				spec, ok := s.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if of, ok := spec.Type.(*ast.StructType); ok {
					visit(f, spec.Name.Name, of)
				}
			}
		}
	}
}

// fieldsOf counts the fields of a type, found by the last element of its package's path and its
// name in whichever folder that package is. An embedded field counts one.
func fieldsOf(t *tree, base, name string) string {
	figure := na
	t.structs(func(f *file, of string, s *ast.StructType) {
		if of != name || path.Base(f.dir) != base {
			return
		}
		n := 0
		for _, field := range s.Fields.List {
			n += max(1, len(field.Names))
		}
		figure = fmt.Sprint(n)
	})
	return figure
}

// methodsOf counts the methods of a type, and the files that they are in.
func methodsOf(t *tree, base, name string) (methods int, files []string) {
	t.funcs(func(f *file, d *ast.FuncDecl) {
		if path.Base(f.dir) != base || receiver(d) != name {
			return
		}
		methods++
		if !slices.Contains(files, f.path) {
			files = append(files, f.path)
		}
	})
	return methods, files
}

func typeRows(t *tree) []row {
	methods, files := methodsOf(t, "eviction", "Manager")
	rows := []row{
		{"methods of eviction.Manager", fmt.Sprint(methods), nil},
		count("files with methods of eviction.Manager", files),
	}
	for _, of := range [][2]string{{"kill", "Victim"}, {"deliver", "Deliverer"}, {"deliver", "entry"}} {
		rows = append(rows, row{fmt.Sprintf("fields of %s.%s", of[0], of[1]), fieldsOf(t, of[0], of[1]), nil})
	}
	return rows
}
