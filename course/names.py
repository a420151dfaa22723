"""Which names a piece of Python makes, and which it reads from elsewhere."""

import ast


def names_of(node: ast.AST) -> "Names":
    """The names of a syntax tree."""
    names = Names()
    names.visit(node)
    return names


class Names(ast.NodeVisitor):
    """made: the names that a scope makes. read: those that it reads before it makes
    them. read_later: those that the functions in it read, which run later.
    """

    def __init__(self):
        self.made, self.read, self.read_later = set(), set(), set()
        self.of_others = set()  # declared as global or nonlocal

    def visit_all(self, *nodes):
        """Visit nodes, lists of them and None, in the order in which they run."""
        for node in nodes:
            for each in node if isinstance(node, list) else [node]:
                if each is not None:
                    self.visit(each)

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Store):
            self.made.add(node.id)
        elif node.id not in self.made:
            self.read.add(node.id)

    def visit_alias(self, node):
        self.made.add(node.asname or node.name.partition(".")[0])

    def visit_ExceptHandler(self, node):
        self.made.update({node.name} - {None})
        self.generic_visit(node)

    def visit_Global(self, node):
        self.of_others.update(node.names)

    visit_Nonlocal = visit_Global

    # what is assigned is computed before

    def visit_Assign(self, node):
        self.visit_all(node.value, node.targets)

    def visit_AnnAssign(self, node):
        self.visit_all(node.annotation, node.value, node.target)

    def visit_NamedExpr(self, node):
        self.visit_all(node.value, node.target)

    def visit_AugAssign(self, node):
        if isinstance(node.target, ast.Name) and node.target.id not in self.made:
            self.read.add(node.target.id)
        self.visit_all(node.value, node.target)

    def visit_For(self, node):
        self.visit_all(node.iter, node.target, node.body, node.orelse)

    visit_AsyncFor = visit_For

    # scopes of their own

    def visit_FunctionDef(self, node):
        self.visit_all(node.decorator_list, node.returns)
        self.made.add(node.name)
        self._function(node.args, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node):
        self._function(node.args, [node.body])

    def _function(self, args, body):
        children = ast.iter_child_nodes(args)
        given = [child for child in children if isinstance(child, ast.arg)]
        self.visit_all(args.defaults, args.kw_defaults)
        self.visit_all([arg.annotation for arg in given])
        inner = Names()
        inner.visit_all(body)
        local = {arg.arg for arg in given} | inner.made
        self.read_later |= (inner.read | inner.read_later) - local | inner.of_others

    def visit_ClassDef(self, node):
        self.visit_all(node.decorator_list, node.bases, node.keywords)
        inner = Names()
        inner.visit_all(node.body)
        self.read |= inner.read - self.made
        self.read_later |= inner.read_later  # methods do not see the names of the class
        self.made.add(node.name)

    def _comprehension(self, node):
        inner = Names()
        for each in node.generators:
            inner.visit_all(each.iter, each.target, each.ifs)
        values = [getattr(node, name, None) for name in ("key", "value", "elt")]
        inner.visit_all(*values)
        self.read |= inner.read - self.made
        self.read_later |= inner.read_later - inner.made

    visit_ListComp = visit_SetComp = visit_DictComp = _comprehension
    visit_GeneratorExp = _comprehension
