"""The dynamic program with exact liveness, against every chain of many small graphs, walked op by op."""

import pytest

from layermem._native import LowerSetPlanner
from tests.native.recompute_oracle import random_oracle


class ChainOracle:
    """The cost of a segment of a chain, computed by running its actions on a set of resident items.

    U are the values kept from earlier segments; they stay while a segment runs, except those that are not needed any
    more.
    """

    def __init__(self, oracle):
        self.oracle = oracle
        self.whole = frozenset(range(len(oracle.nodes)))
        self.readers = [oracle.readers(x) for x in range(len(oracle.values))]
        self.back = [oracle.back_owners(x) for x in range(len(oracle.values))]
        inputs = [x for x, value in enumerate(oracle.values) if value["producer"] is None]
        self.inputs = frozenset(x for x in inputs if self.readers[x] or self.back[x])
        self.after = [oracle.after(v) for v in sorted(self.whole)]

    # -- lifetimes of kept values ----------------------------------------------------------------------------------

    def kept_of(self, segment, lower):
        return {x for v in segment for x in self.oracle.nodes[v]["writes"] if self.is_kept(x, v, lower)}

    def is_kept(self, x, node, lower):
        if self.oracle.values[x]["kept"] or (self.readers[x] | self.back[x]) - lower:
            return True
        is_stash = not self.readers[x] and self.back[x]
        return bool(is_stash and self.after[node] - lower)

    def wanted_in(self, x, lower):
        """Whether a forward of `lower` that may be recomputed, or one of its steps, needs the value."""
        value = self.oracle.values[x]
        own_recompute = value["kept"] and value["producer"] in lower
        return own_recompute or bool(self.readers[x] & lower) or bool(self.back[x] & lower)

    def dying(self, kept, lower):
        """The values certainly kept after `lower` that it does not need itself."""
        anyway = {x for x in kept if x in self.inputs or self.oracle.values[x]["kept"]}
        certain = anyway | {x for x in kept if (self.readers[x] | self.back[x]) - lower}
        return {x for x in certain if not self.wanted_in(x, lower)}

    # -- one segment ----------------------------------------------------------------------------------------------

    def extend(self, chain, last, lower):
        """(time, peak, U) of a chain that ends in `last`, extended by `lower`."""
        time, peak, kept = chain
        segment = sorted(lower - last)
        steps = [("backward", s) for s, step in enumerate(self.oracle.steps) if step["owner"] in segment]
        if lower == self.whole:
            actions = [("forward", v) for v in segment] + steps
            return time, max(peak, self.backward(actions, kept, set(), last, lower)), kept
        fresh = self.kept_of(segment, lower)
        peak = max(peak, self.first_run(segment, kept, fresh))
        recomputes = self.recomputes(segment, fresh, steps, last)
        early = [("recompute", v) for v in sorted(recomputes)] + steps
        late = []
        for position in range(len(steps) + 1):
            late += [("recompute", v) for v in sorted(recomputes) if recomputes[v] == position]
            late += steps[position : position + 1]
        peak = max(peak, min(self.backward(actions, kept, fresh, last, lower) for actions in (early, late)))
        time += sum(self.oracle.nodes[v]["recompute_time"] for v in recomputes)
        read = {x for v in recomputes for x in self.oracle.nodes[v]["reads"]}
        released = {
            x
            for x in self.dying(kept, last) - self.inputs - read
            if not self.oracle.values[x]["kept"] and not self.back[x] and self.readers[x] <= lower
        }
        return time, peak, kept - released | fresh

    def recomputes(self, segment, fresh, steps, last):
        """Nodes to run again, each with the position in `steps` of the first need."""
        first = {}
        produced = {x for v in segment for x in self.oracle.nodes[v]["writes"]} - fresh
        for x in produced:
            uses = [k for k, (_, s) in enumerate(steps) if x in self.oracle.steps[s]["values"]]
            uses += [len(steps)] if self.back[x] & last else []
            if uses:
                first[x] = min(uses)
        recomputes = {}
        for v in reversed(segment):
            needs = [first[x] for x in self.oracle.nodes[v]["writes"] if x in first]
            if needs:
                recomputes[v] = min(needs)
                for x in set(self.oracle.nodes[v]["reads"]) & produced:
                    first[x] = min(first.get(x, recomputes[v]), recomputes[v])
        return recomputes

    def first_run(self, segment, kept, fresh):
        resident = {("value", x) for x in kept}
        ends = {}
        for v in segment:
            for x in self.oracle.nodes[v]["writes"]:
                if x not in fresh:
                    ends[("value", x)] = max(self.readers[x], default=v)
        peak = self.oracle.bytes_of(resident)
        for v in segment:
            dies = {item for item, end in ends.items() if end == v}
            peak = max(peak, self.run(("forward", v), resident, dies))
        return peak

    def backward(self, actions, kept, fresh, last, lower):
        uses = {}
        for k, action in enumerate(actions):
            for item in self.touched(action):
                uses[item] = k
        dying = self.dying(kept, last)
        resident = {("value", x) for x in kept - {x for x in dying if ("value", x) not in uses}}
        resident |= {("value", x) for x in fresh if ("value", x) in uses or self.back[x] & last}
        for x, value in enumerate(self.oracle.values):
            if value["producer"] is not None and value["producer"] not in lower and self.back[x] & lower:
                resident.add(("value", x))
        for g, grad in enumerate(self.oracle.grads):
            writers, touchers = self.owners(g)
            if writers - lower and (touchers & lower or grad["final"]):
                resident.add(("grad", g))
        peak = self.oracle.bytes_of(resident)
        for k, action in enumerate(actions):
            dies = {item for item, end in uses.items() if end == k and self.may_die(item, dying, kept, last)}
            peak = max(peak, self.run(action, resident, dies))
        return peak

    def may_die(self, item, dying, kept, last):
        kind, i = item
        if kind == "grad":
            return not self.oracle.grads[i]["final"] and not self.owners(i)[1] & last
        return i in dying if i in kept else not self.back[i] & last

    # -- one action -----------------------------------------------------------------------------------------------

    def owners(self, g):
        writers = {step["owner"] for step in self.oracle.steps if g in step["writes"]}
        return writers, writers | {step["owner"] for step in self.oracle.steps if g in step["reads"]}

    def op(self, action):
        kind, i = action
        return self.oracle.steps[i] if kind == "backward" else self.oracle.nodes[i]

    def written(self, action):
        kind = "grad" if action[0] == "backward" else "value"
        return [(kind, i) for i in self.op(action)["writes"]]

    def touched(self, action):
        op = self.op(action)
        if action[0] == "backward":
            return [("value", x) for x in op["values"]] + [("grad", g) for g in (*op["reads"], *op["writes"])]
        return [("value", x) for x in (*op["reads"], *op["writes"])]

    def run(self, action, resident, dies):
        """Bytes while the action runs; afterwards `resident` holds the remaining items."""
        op = self.op(action)
        new = set(self.written(action)) - resident
        if action[0] == "backward":
            overlays = [(("grad", g), ("value", x)) for g, x in op["over_values"]]
            overlays += [(("grad", g), ("grad", h)) for g, h in op["over_grads"]]
        else:
            overlays = [(("value", x), ("value", y)) for x, y in op["overlays"]]
        saved, taken = 0, set()
        for write, read in overlays:
            fits = self.oracle.bytes_of([write]) <= self.oracle.bytes_of([read])
            if write in new and read in dies and fits and not taken & {write, read}:
                saved += self.oracle.bytes_of([write])
                taken |= {write, read}
        resident |= new
        use = self.oracle.bytes_of(resident) + op["workspace_bytes"] - saved
        resident -= dies
        return use

    def every_chain(self):
        """All (time, peak, M(U)); chains with equal results are merged."""
        sets = self.oracle.lower_sets()
        reached = {lower: set() for lower in sets}
        reached[frozenset()] = {(0, 0, self.inputs)}
        for last in sets:
            for lower in sets:
                if last < lower:
                    reached[lower] |= {self.extend(chain, last, lower) for chain in reached[last]}
        return {(t, peak, self.oracle.bytes_of(("value", x) for x in kept)) for t, peak, kept in reached[self.whole]}


@pytest.mark.samples(20)
@pytest.mark.parametrize("block", range(10))
def test_the_exact_family_finds_the_optimum_of_every_chain(block):
    for seed in range(block * 100, block * 100 + 100):
        oracle = random_oracle(seed, most=6 if seed % 10 else 8)
        every = ChainOracle(oracle).every_chain()
        planner = LowerSetPlanner(oracle.native(), family="exact", model="live")
        peaks = sorted({peak for _, peak, _ in every})
        assert planner.minimum().model_peak_bytes == peaks[0], seed
        for budget in {peaks[0] - 1, peaks[0], peaks[len(peaks) // 3], peaks[len(peaks) // 2], peaks[-1]}:
            fits = [(time, kept) for time, peak, kept in every if peak <= budget]
            for objective, best in (("time", min), ("memory", max)):
                plan = planner.solve(budget, objective)
                if not fits:
                    assert plan is None and planner.proven_infeasible
                    continue
                time = best(time for time, _ in fits)
                assert plan.recompute_time == time, (seed, budget, objective)
                assert plan.kept_bytes == min(kept for t, kept in fits if t == time), (seed, budget, objective)
                assert plan.peak_bytes <= plan.model_peak_bytes <= budget
                assert plan.proven_optimal


@pytest.mark.samples(8)
@pytest.mark.parametrize("seed", range(40))
def test_the_quick_bound_of_a_peak_is_never_above_it(seed):
    planner = LowerSetPlanner(random_oracle(seed, most=24).native(), family="extended", model="live")
    sets = [frozenset(members) for members in planner.sets()]
    for upper in range(len(sets)):
        for lower in (i for i in range(upper) if sets[i] < sets[upper]):
            cost = planner.segment(lower, upper)
            assert cost["peak_bound"] <= cost["peak"], (lower, upper)


@pytest.mark.parametrize("seed", range(12))
def test_a_planner_answers_for_a_smaller_family_as_one_of_that_family_does(seed):
    graph = random_oracle(seed, most=24).native()
    small, large = (LowerSetPlanner(graph, family=family, model="live") for family in ("approx", "extended"))
    least = large.minimum(family="approx").model_peak_bytes
    assert least == small.minimum().model_peak_bytes
    for budget in (least - 1, least, least + least // 4, 2 * least):
        large.solve(budget)  # after other queries
        assert large.may_fit(budget, family="approx") == small.may_fit(budget) == (budget >= least)
        own, other = small.solve(budget), large.solve(budget, family="approx")
        assert (own and own.lower_sets) == (other and other.lower_sets)


@pytest.mark.samples(8)
@pytest.mark.parametrize("seed", range(12))
def test_a_smaller_budget_has_the_answer_that_a_planner_without_earlier_questions_gives(seed):
    """This holds even if the answer is the chain of a larger budget that fits."""
    graph = random_oracle(seed, most=24).native()
    planner = LowerSetPlanner(graph, family="extended", model="live")
    least = planner.minimum().model_peak_bytes
    for objective in ("time", "memory"):
        budget = 2 * least
        while budget >= least:
            plan = planner.solve(budget, objective)
            for smaller in (plan.model_peak_bytes, plan.model_peak_bytes - 1):
                alone = LowerSetPlanner(graph, family="extended", model="live").solve(smaller, objective)
                again = planner.solve(smaller, objective)
                assert (again and again.lower_sets) == (alone and alone.lower_sets), (smaller, objective)
            budget = plan.model_peak_bytes - 1


def test_a_planner_does_not_answer_for_a_larger_family():
    planner = LowerSetPlanner(random_oracle(0).native(), family="approx", model="live")
    with pytest.raises(ValueError, match="no sets of a family that large"):
        planner.solve(1, family="extended")
