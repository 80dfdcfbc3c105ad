"""Real weights: the shipped sentiment prompt on forty sentences of our own."""

import re
from pathlib import Path

from services.encoding import load_tokenizer
from services.engine.tasks import ScoredEvent
from services.prompt_encoding import PromptEncoder
from services.prompts import load_prompt
from services.ready import Ready

MIN_RIGHT = 34
SENTENCES = {
    ("en", "Positive"): [
        "The soup was delicious and the waiter remembered my name.",
        "I finally passed my driving test today!",
        "Best headphones I have owned, clear sound and light as a feather.",
        "Thank you for fixing this so quickly, you made my week.",
        "The beach was quiet, the water warm, we did not want to leave.",
        "My grandmother called just to tell me that she is proud of me.",
        "Setup took two minutes and it has worked flawlessly since.",
        "What a gorgeous ending, the whole cinema applauded.",
        "The nurse was patient and explained everything twice.",
        "Not bad at all, I would happily buy it again.",
    ],
    ("en", "Negative"): [
        "The zip broke the first time I used it.",
        "We waited ninety minutes and the pizza arrived cold.",
        "I feel so alone since he moved away.",
        "The plot makes no sense and the jokes are stale.",
        "They charged me twice and refuse to give the money back.",
        "My train was cancelled again and I missed the interview.",
        "The room smelled of smoke and the sheets were stained.",
        "I can't say that I enjoyed a single minute of it.",
        "Worst update ever, the app crashes whenever I open it.",
        "She ignored me all evening, I cried on the way home.",
    ],
    ("zh", "Positive"): [
        "老板人特别好，还多送了一份水果。",
        "今天阳光真好，心情也跟着亮了起来。",
        "这双鞋穿着很舒服，走一天都不累。",
        "女儿第一次叫了爸爸，我高兴得快哭了。",
        "客服回复很快，问题一下子就解决了。",
        "演员的表演太精彩了，看完久久不能平静。",
        "酒店就在地铁口，房间干净，早餐也丰富。",
        "终于拿到录取通知书了，努力没有白费！",
        "味道一点也不差，下次还带朋友来。",
        "和老同学聊到半夜，好久没这么开心了。",
    ],
    ("zh", "Negative"): [
        "买回来第三天屏幕就花了。",
        "排了两个小时的队，结果说卖完了。",
        "一点也不好用，后悔买了。",
        "房间隔音太差，吵得一晚上没睡着。",
        "快递员态度恶劣，东西直接扔在门口。",
        "最近压力好大，每天都想哭。",
        "剧情拖沓，看到一半就睡着了。",
        "说好的退款拖了一个月还没到账。",
        "菜又咸又油，肉还是生的。",
        "养了十年的狗走了，家里突然好安静。",
    ],
}


def test_at_least_34_of_40_are_right(ready: Ready) -> None:
    scorer = ready.scorers["sentiment"]
    wrong = []
    for (_, label), texts in SENTENCES.items():
        for text in texts:
            event = ready.engine.submit(scorer.task(ready.encoder.encode_text(text))).next_event(60)
            assert isinstance(event, ScoredEvent)
            verdict = scorer.decide(event.log_probs)
            if verdict.label != label:
                wrong.append(f"{text} is {verdict.label} ({verdict.confidence:.2f})")
    total = sum(map(len, SENTENCES.values()))
    assert total - len(wrong) >= MIN_RIGHT, "\n".join(wrong)


def test_example_task_of_the_readme_fits_its_budget(ready: Ready, tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    found = re.search(r"```yaml\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    (tmp_path / "urgency.yaml").write_text(found[1], "utf-8")
    encoded = PromptEncoder(load_tokenizer(ready.files.folder)).encode(
        load_prompt(tmp_path / "urgency.yaml")
    )
    assert len(set(encoded.choices)) == len(encoded.prompt.labels)
