"""Losses and rewards in Python against nrl's own: the same numbers, gradients that differences confirm, mistakes that are told."""
import nrl
from common import Case, configs, main


@nrl.loss
def expression(b):
    return -(b.logps * b.weights).sum()


@nrl.loss(tokenwise=True)
def by_token(b):
    return -(b.logps * b.weights).sum()


@nrl.loss(metrics={"seen": "sum"})
def numbers(b):
    logps, weights = b.logps.tolist(), b.target_weights
    b.metric("seen", float(len(logps)))
    return b.custom([-x * w for x, w in zip(logps, weights)], logps=[-w for w in weights])


@nrl.loss(needs=["logps", "ref_logps", "pairs"], weight="pairs", metrics={"margin": ("mean", "larger")})
def preference(b):
    margin = b.seq_sum((b.logps - b.ref_logps) * b.weights) * 0.1
    difference = b.chosen(margin) - b.rejected(margin)
    b.metric("margin", difference)
    return -difference.log_sigmoid().sum()


@nrl.loss
def focal(b):
    return -((1 - b.logps.exp()) ** 2 * b.logps * b.weights).sum()


@nrl.loss
def wrong(b):
    """The gradient has the wrong sign."""
    return b.custom([-x * w for x, w in zip(b.logps.tolist(), b.target_weights)], logps=list(b.target_weights))


class Losses(Case):
    def losses(self, algorithm, out, **keys):
        with nrl.open(self.config(out, algorithm=algorithm, **keys)) as run:
            return [e.loss for e in run.steps()], dict(run.evaluate(configs("data/chat_eval.jsonl")))

    def test_both_ways_to_write_a_loss_train_as_the_plugin(self):
        want, evaluated = self.losses("sft", "sft")
        for loss in (expression, by_token, numbers):
            got, seen = self.losses(loss, loss.name)
            for mine, theirs in zip(got, want):
                self.assertAlmostEqual(mine, theirs, delta=1e-5)
            self.assertAlmostEqual(seen["eval_loss"], evaluated["eval_loss"], delta=1e-5)

    def test_pairs_train_as_dpo(self):
        def steps(algorithm, out):
            config = self.config(out, algorithm=algorithm)
            config["data"]["train"] = configs("data/pref.jsonl")
            with nrl.open(config) as run:
                return list(run.steps())
        mine, theirs = steps(preference, "mine"), steps({"name": "dpo", "beta": 0.1}, "theirs")
        self.assertAlmostEqual(mine[0].loss, 0.693147, delta=1e-5)
        for a, b in zip(mine, theirs):
            self.assertAlmostEqual(a.loss, b.loss, delta=1e-5)
        self.assertGreater(mine[-1].values["margin"], 0)

    def test_gradients_are_compared_with_differences(self):
        for loss in (expression, numbers, focal):
            self.assertLess(nrl.gradcheck(loss), 0.005)
        with self.assertRaises(nrl.ConfigError):
            nrl.gradcheck(wrong)

    def test_where_takes_numbers_beside_any_mask(self):
        seen = []

        @nrl.loss
        def odd(b):
            infinite = (b.logps * 0.0).detach().log()  # -inf
            for mask in (infinite, infinite - infinite, infinite.exp()):
                seen.append(set(nrl.where(mask, 2, 3).tolist()))
            return -(nrl.where(infinite, b.logps, 1) * nrl.where(infinite - infinite, 2, 1) * b.weights).sum()
        self.assertLess(nrl.gradcheck(odd), 0.005)
        self.assertEqual(seen[:3], [{2.0}, {2.0}, {3.0}])

    def test_a_reward_moves_probability_to_what_it_likes(self):
        @nrl.reward(baseline=0.5)
        def likes_digits(text):
            self.assertIsInstance(text, str)
            return 1.0 if any(c.isdigit() for c in text) else 0.0
        with nrl.open(self.config(algorithm=likes_digits, train={"steps": 8, "global_batch": 8})) as run:
            ids = run.tokenizer.encode("2 plus 3 is 5"), run.tokenizer.encode("I do not know")
            before = [sum(row) for row in run.logps(ids)]
            events = list(run.steps())
            after = [sum(row) for row in run.logps(ids)]
        self.assertTrue(all(0 <= e.values["reward"] <= 1 for e in events))
        self.assertGreater(after[0] - before[0], after[1] - before[1])

    def test_losses_are_shared_by_runs_and_found_by_name(self):
        with nrl.open(self.config("a", algorithm="focal"), losses=[focal]) as a, nrl.open(self.config("b", algorithm=focal)) as b:
            self.assertEqual([e.loss for e in a.steps()], [e.loss for e in b.steps()])

    def test_mistakes_are_told_and_exceptions_pass_unchanged(self):
        kept = []

        def fails(text, **options):
            def decorate(function):
                loss = nrl.loss(name="mistake", **options)(function)
                with self.assertRaises(nrl.ConfigError) as caught, nrl.open(self.config(function.__name__, algorithm=loss)) as run:
                    run.train()
                self.assertIn(text, str(caught.exception))
                return loss
            return decorate

        @fails("a loss returns one number, got ")
        def not_a_sum(b):
            return b.logps

        @fails("expected 2 results (terms=2), got 1", terms=2)
        def one_term(b):
            return b.logps.sum()

        @fails("a weight is a number of 0 or more", weight=lambda b: -1.0)
        def negative(b):
            return b.logps.sum()

        @fails("before any forward", weight=lambda b: b.logps.sum().item())
        def early(b):
            return b.logps.sum()

        @fails("there is no 'answers', expected one of: answer_tokens", weight=lambda b: b.count("answers"))
        def no_count(b):
            return b.logps.sum()

        @fails("this loss has no metric 'm'")
        def no_metric(b):
            b.metric("m", 1.0)

        @fails("the gradient of logps has 1 values, expected")
        def short_gradient(b):
            return b.custom(0.0, logps=[1.0])

        @fails("this tensor belongs to an earlier step")
        def keeps(b):
            kept.append(b.logps)
            return kept[0].sum()

        class Mine(Exception):
            pass

        @nrl.loss
        def raises(b):
            raise Mine("as it was")
        with self.assertRaises(Mine), nrl.open(self.config("raises", algorithm=raises)) as run:
            run.train()
        with self.assertRaises(nrl.ConfigError):
            nrl.loss(weight="words")(lambda b: b)


if __name__ == "__main__":
    main()
