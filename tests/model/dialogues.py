"""Dialogues of our own, both languages, to hold one precision against another: turns in order,
the user's first."""

DIALOGUES: list[list[str]] = [
    [
        "My balcony gets sun only in the morning. Which vegetables could I grow there?",
        "Lettuce, spinach and radishes do well with four hours of light. Peas climb nicely on a "
        "railing, and most herbs other than basil will be content. Tomatoes and peppers would "
        "flower but hardly ripen, so I would leave them out this year.",
        "How often do I have to water the lettuce?",
        "Put a finger into the soil: if the first two centimetres are dry, water it. In spring "
        "that "
        "is every second day, in a hot week every morning. Water the soil, not the leaves, and "
        "make sure that the pot can drain.",
    ],
    [
        "I have a job interview on Thursday and I am terrified.",
        "That is very common, and it means that the job matters to you. Write down three things "
        "you "
        "did well in your last position and practise telling each of them in two minutes. When "
        "you are asked something difficult, take a breath before you answer; a short silence "
        "sounds thoughtful, not slow.",
        "What if they ask why I left my last company?",
        "Stay honest and brief. Say what you were looking for that you could not find there, such "
        "as "
        "more responsibility or a shorter journey, and then talk about what attracts you here. "
        "Never speak badly of your former manager.",
    ],
    [
        "Can you explain what a hash table is, as if I were twelve?",
        "Imagine a wall with a hundred numbered lockers. A rule turns every name into a number, "
        "for "
        "instance by adding up its letters. To store Anna's bag you work out her number and use "
        "that locker; to find it again you work out the number once more and go straight there. "
        "You never have to look into the other lockers, and that is why it is quick.",
        "And if two names give the same number?",
        "Then two bags share a locker, and you put a label on each. Looking something up takes a "
        "moment longer, because you read the labels. A good rule spreads the names evenly, and "
        "when "
        "the lockers get crowded you build a bigger wall and move everything over.",
    ],
    [
        "The dishwasher leaves a white film on my glasses.",
        "That is usually limescale. Check whether the salt container is empty and whether the "
        "hardness setting fits your water. Run it once, empty and hot, with a cup of vinegar on "
        "the "
        "upper rack. If the film does not come off with vinegar, the glass itself is etched, and "
        "a lower temperature will at least keep it from getting worse.",
        "It came off with vinegar, thank you!",
        "Wonderful, so it was limescale. Fill up the salt, and add rinse aid once a month.",
    ],
    [
        "We are three friends with one weekend in Porto. What should we not miss?",
        "Walk across the upper level of the bridge at sunset and have a glass of port on the other "
        "side of the river. Visit the old railway station for its blue tiles, early in the morning "
        "before the groups arrive. On Sunday take the tram to the sea, eat grilled sardines, and "
        "come back along the water on foot.",
        "Is it expensive?",
        "Less than most capitals. A simple lunch costs about ten euros, a coffee one, and most "
        "viewpoints are free. Book the beds early, since they are what becomes dear in summer.",
    ],
    [
        "Write a short poem about a bicycle in the rain.",
        "Two thin wheels on a silver street,\nrain that drums on the empty seat,\na bell that "
        "rings "
        "for nobody near,\nand a lamp that says: I am still here.",
    ],
    [
        "我最近总是半夜三点醒来，再也睡不着，怎么办？",
        "半夜醒来很常见，多半和压力或者作息有关。醒来以后先不要看手机，也不要看时间；如果二十分钟还睡不着，"
        "就起来坐一会儿，看几页纸质书，困了再回到床上。白天尽量固定起床时间，下午两点以后少喝咖啡。"
        "如果这样坚持三个星期还没有好转，建议去看医生。",
        "我晚上常常喝一点酒，有影响吗？",
        "有影响。酒会让人更快入睡，但是后半夜睡得浅，容易醒。可以先停两个星期，看看睡眠有没有变化。",
    ],
    [
        "请给我推荐一道简单的家常菜，家里只有鸡蛋、番茄和面条。",
        "那就做番茄鸡蛋面吧。先把两个鸡蛋打散，用热油炒到刚刚凝固，盛出来备用。番茄切块，小火炒出汁水，"
        "加一点盐和糖，再倒一碗开水煮三分钟。另一个锅里煮面，捞出来放进汤里，最后把鸡蛋倒回去，"
        "撒上葱花就可以吃了。",
        "没有葱花可以吗？",
        "当然可以，放几滴香油或者一点胡椒粉，味道也很好。",
    ],
    [
        "孩子今年七岁，写作业总是拖到很晚，我很着急。",
        "先别着急，这个年纪的孩子专注的时间只有十五到二十分钟。可以把作业分成几小段，每完成一段休息五分钟，"
        "让他自己用计时器。开始的时间要固定，比如吃完点心以后，手机和电视都关掉。做完了马上肯定他的努力，"
        "不要再加题目，否则他会觉得做得快反而吃亏。",
        "如果他还是不愿意开始呢？",
        "试着和他一起做第一道题，开了头就容易了。也可以让他自己选先做哪一科，有了选择，他会更愿意动手。",
    ],
    [
        "地铁和公交，去机场哪个更合适？",
        "如果是早晚高峰，坐地铁更稳妥，时间可以算得准；行李多或者天还没亮的时候，机场大巴更方便，"
        "不用上下楼梯。建议您提前查一下末班车的时间，再多留半个小时。",
        "我的航班是早上七点。",
        "那么五点半之前就要到机场，这个时间地铁可能还没有开。最好前一天晚上预约出租车，或者住在机场附近。",
    ],
    [
        "什么是通货膨胀？能不能用一个简单的例子说明？",
        "通货膨胀就是物价普遍上涨，钱变得不那么值钱。比如去年十块钱可以买五个苹果，今年只能买四个，"
        "苹果没有变，是钱的购买力下降了。轻微的通货膨胀往往伴随着经济增长，但是如果涨得太快，"
        "人们的工资跟不上，储蓄也会缩水，生活就会受到影响。",
        "那我应该把钱存在银行吗？",
        "应急的钱应该放在银行，随时可以取。长期不用的部分可以分散安排，但要先了解风险，不要投入自己承受不起的钱。",
    ],
    [
        "我和室友吵架了，因为他总是不洗碗。",
        "一起生活难免有摩擦。找一个大家都不累的时候，说说自己的感受，比如“看到水池里堆满碗，我下班回来会很烦”，"
        "而不是“你太懒了”。然后一起定一个简单的规则，谁做饭谁不洗碗，或者轮流，一人一天。",
        "他说他工作太忙，没有时间。",
        "那可以问问他能做什么，比如周末打扫或者倒垃圾。重要的是公平，不一定每件事都一样。",
        "好的，我今晚试试和他谈。",
        "祝你们谈得顺利！说的时候语气轻松一点，先谢谢他平时做的事，效果会更好。",
    ],
    [
        "帮我写一段生日祝福，送给我的奶奶，她今年八十岁。",
        "亲爱的奶奶，祝您八十岁生日快乐！谢谢您用一双手把我们带大，用一碗碗热汤陪我们走过冬天。"
        "愿您身体健康，天天有好胃口，院子里的花年年开得热闹，我们也常常回来听您讲从前的故事。",
    ],
    [
        "What is the difference between weather and climate?",
        "Weather is what you see when you look out of the window today. Climate is what you may "
        "expect after looking out of the same window for thirty years.",
    ],
]
